"""The capstone's checks name what is wrong in a decoder, on a small case, and measure right ones.

Wrong decoders are the solution with a place changed (`tests/mistakes/capstone.py`).
"""

import runpy
from pathlib import Path

import pytest

import specviz as sv
from checks import capstone
from checks.attempts import work
from checks.attempts.board import COLUMNS, Board
from checks.attempts.judging import AttemptOutcome, Counterexample, judge, run, watched
from checks.attempts.rows import RowUse, rows_of
from checks.attempts.speed import MOST_TURNS, Speed, _is_decided
from checks.base import WrongAnswerError
from checks.decoders import mending, slots
from specviz import metrics
from specviz.checks.watch import capture, origins
from specviz.checks.watch.causes import UNREAD
from specviz.checks.watch.diagnose import ADVICE

MISTAKES = runpy.run_path(str(Path(__file__).parent / "mistakes" / "capstone.py"))
TWO_ROWS = work.Assignment(work.timed().prompts[2:4], K=2, max_new_tokens=8, batch_size=2)
EVERY = [
    pytest.param(check, word, id=f"{check}-{word}")
    for check, table in (("alone", "ALONE"), ("batched", "BATCHED"))
    for word in MISTAKES[table]
]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "word"), EVERY)
def test_a_typical_mistake_is_named(check, word, capsys):
    make, table = {"alone": ("first", "ALONE"), "batched": ("second", "BATCHED")}[check]
    decode = MISTAKES[make](*MISTAKES[table][word])
    assert getattr(capstone, check)(decode) is False
    said = capsys.readouterr().out
    assert said.startswith("no: ")
    assert word in said
    if word.endswith(":"):  # a rule: the row, the round, and a case to repeat
        assert "since round" in said
        assert "decode(pair.target, pair.draft, [[" in said


@pytest.mark.slow
def test_the_smallest_case_repeats_the_fault(capsys):
    assert capstone.colleague(*MISTAKES["WRONG"]["colleague"][0]) is False
    found = capstone.counterexample()
    assert isinstance(found, Counterexample)
    assert len(found.prompts) == 2
    assert max(map(len, found.prompts)) < 8
    again = run(slots.decode, found.outcome.work)
    assert again.outputs == found.outcome.outputs
    assert not again.is_right
    assert found.report is not None
    first = found.report.faults[0]
    assert (first.rule, first.request, first.round) == ("kv", 1, 0)
    assert f"row {first.row}" in str(found)


def test_a_counterexample_whose_texts_are_right_says_nothing_of_a_wrong_text():
    """Forwards may be wrong and leave all texts right."""
    found = Counterexample(AttemptOutcome(TWO_ROWS, TWO_ROWS.due()), None)
    assert str(found) == str(TWO_ROWS)


@pytest.mark.slow
def test_a_decoder_that_does_not_refill_or_batch_is_right_and_not_done():
    decode = MISTAKES["first"]("    a = 0\n", "    a = 0\n")  # one row at a time
    asked = work.Assignment(work.batch().prompts[:3], batch_size=2)
    rows = rows_of(judge(decode, asked, []), 2)
    assert rows == RowUse(most=1, first_empty=0, empty=rows.empty, late=2)
    assert rows.empty > 4


def report_of(decode, asked):
    """Return what `sv.watch` says of a decoder, right or wrong."""
    return watched(decode, asked)[1]()


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("make", "name", "said"),
    [
        ("second", "positions", "in 2 of 2 requests every position is 1 too large"),
        ("first", "read again", "keep K/V of all committed tokens but the last one"),
    ],
)
def test_a_right_text_with_a_broken_rule_gets_a_remark(make, name, said):
    place, _ = change = MISTAKES["REMARKED"][name]
    right = report_of(MISTAKES[make](place, place), TWO_ROWS)
    assert (right.is_right, right.costs) == (True, [])
    report = report_of(MISTAKES[make](*change), TWO_ROWS)
    assert report.is_right
    assert [cost.name for cost in report.costs] == [name]
    assert said in report.costs[0].sentence


def test_a_token_that_was_never_read_was_neither_moved_nor_cut():
    first = report_of(MISTAKES["second"](*MISTAKES["BATCHED"]["kv:"]), TWO_ROWS).faults[0]
    assert (first.rule, first.advice) == ("kv", ADVICE[UNREAD])
    assert "was never read" in first.cause
    assert "moved or cut" not in first.cause


def test_a_mask_that_all_queries_share_is_named_as_the_mask():
    report = report_of(MISTAKES["second"](*MISTAKES["MASK"]), TWO_ROWS)
    assert report.faults[0].rule == "mask"
    assert "token 0 sees slot 1" in report.faults[0].cause
    assert report.notes == []


def test_a_mask_that_cannot_be_seen_is_suspected_if_all_else_is_right(monkeypatch):
    for module in (capture, origins):
        monkeypatch.setattr(module, "visible", lambda *_: (None, "the mask is odd"))
    place = MISTAKES["MASK"][0]
    assert report_of(MISTAKES["second"](place, place), TWO_ROWS).is_right
    report = report_of(MISTAKES["second"](*MISTAKES["MASK"]), TWO_ROWS)
    assert (report.faults[0].rule, report.faults[0].advice) == ("mask", ADVICE["mask"])
    assert "so suspect the mask" in report.faults[0].cause
    assert "the mask is odd" in report.notes[0]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("spare", "is_enough"), [(-1, True), (-2, False)])
def test_the_slots_of_exercise_1_are_enough_and_no_fewer(spare, is_enough):
    """A row needs prompt + budget - 1 + K slots, as the check says; here with a budget of 1."""
    caches = "SlotCache(size, slots), SlotCache(size, slots)"
    decode = MISTAKES["second"](caches, caches.replace("slots)", f"slots + {spare})"))
    outcome = run(decode, work.Assignment(work.timed().prompts[:1], K=4, max_new_tokens=1))
    assert outcome.is_right is is_enough
    assert ("out of bounds" in outcome.error) is not is_enough


def test_a_folded_decoder_is_shown_whole():
    plain, folded = (mending.shown(slots, folded=folded).data for folded in (False, True))
    assert "<details>" not in plain
    code = plain[plain.index("```python") :]
    assert folded.endswith(f"</summary>\n\n{code}\n\n</details>")


@pytest.mark.slow
def test_work_is_ragged_ends_and_has_no_near_ties():
    asked = work.batch()
    lengths = [len(prompt) for prompt in asked.prompts]
    assert len(set(lengths)) > 6
    assert sum(text[-1] == work.EOS for text in asked.due()) >= 2
    assert sum(work.EOS in prompt for prompt in asked.prompts[:8]) == 1
    assert sum(work.EOS in prompt for prompt in asked.prompts[8:]) == 1
    prompts = {prompt for each in (asked, *work.small(8)) for prompt in each.prompts}
    result = sv.generate(
        work.pair(),
        [list(prompt) for prompt in sorted(prompts)],
        strategy="autoregressive",
        batch_size=8,
        max_new_tokens=16,
        record=True,
        progress=False,
    )
    assert metrics.smallest_gap(result.trace) > 1e-3


def test_a_decoder_that_never_ends_is_ended():
    def decode(target, draft, prompts, **options):
        while True:
            target(work.pair().target.dummy_inputs["input_ids"])

    outcome = run(decode, work.Assignment(((1, 457),), K=1, max_new_tokens=1))
    assert "may never end" in outcome.error


@pytest.mark.slow
def test_outputs_that_are_no_texts_are_refused():
    for outputs in (7, [7], [[1], [2]]):
        with pytest.raises(WrongAnswerError):
            judge(lambda *_, **__: outputs, work.Assignment(((1, 457),)), [])  # noqa: B023


def test_the_board_grows(tmp_path):
    board = Board(tmp_path / "runs" / "capstone.csv")
    assert len(board.table()) == 0
    board.add(2, 8, Speed(100.0, (0.9, 0.8, 1.0)), "cpu")
    board.add(3, 8, Speed(150.0, (1.2, 1.3)), "cpu")
    table = board.table()
    assert table["milestone"].tolist() == [2, 3]
    assert table["ratio"].tolist() == [0.9, 1.25]
    assert table[["low", "high"]].to_numpy().tolist() == [[0.8, 1.0], [1.2, 1.3]]
    assert list(table.columns) == list(COLUMNS)


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "\x00\xff"])
def test_another_file_is_no_board(content, tmp_path):
    path = tmp_path / "capstone.csv"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match="must be a leaderboard"):
        Board(path).table()
    assert path.read_text(encoding="latin-1") == content


def test_turns_end_when_they_agree():
    assert not _is_decided([1.5])
    assert _is_decided([1.2, 1.3])
    assert _is_decided([0.5, 0.6])
    assert not _is_decided([1.2, 1.01])
    assert not _is_decided([0.8, 1.3])
    assert _is_decided([1.0] * MOST_TURNS)
