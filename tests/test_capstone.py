"""The capstone's checks judge a decoder, find a small case of its fault, and measure a right one.

`tests/mistakes/capstone.py` has wrong decoders: the solution with a place changed. What the checks
say of them is tested in `test_exercises.py`.
"""

import pytest
from mistakes.capstone import COUNT, PLACES, REMARKED, SHARED_MASK, UNREAD, alone, batched

import specviz as sv
from checks import attempts, capstone
from checks.attempts import Assignment, Attempt, RowUse, Speed
from checks.base import WrongAnswerError
from checks.decoders import slots
from specviz import metrics
from specviz.checks.watch import capture, origins
from specviz.checks.watch.inputs import UNREAD as UNREAD_ADVICE
from specviz.checks.watch.judge import ADVICE

TWO_ROWS = Assignment(attempts.timed().prompts[2:4], K=2, max_new_tokens=8, batch_size=2)
ONE_TOKEN = Assignment(((1, 457),), K=1, max_new_tokens=1)


@pytest.mark.slow
def test_the_smallest_case_repeats_the_fault(capsys):
    assert capstone.colleague(COUNT, COUNT) is False
    found = capstone.counterexample()
    assert isinstance(found, Attempt)
    assert len(found.prompts) == 2
    assert max(map(len, found.prompts)) < 8
    again = attempts.run(slots.decode, found.work)
    assert again.outputs == found.outputs
    assert not again.is_right
    assert found.report is not None
    first = found.report.faults[0]
    assert (first.rule, first.request, first.round) == ("kv", 1, 0)
    assert f"row {first.row}" in str(found)


def test_a_counterexample_whose_texts_are_right_says_nothing_of_a_wrong_text():
    """Forwards may be wrong and leave all texts right."""
    assert str(Attempt(TWO_ROWS, TWO_ROWS.due())) == str(TWO_ROWS)


@pytest.mark.slow
def test_a_decoder_that_does_not_refill_or_batch_is_right_and_not_done():
    asked = Assignment(attempts.batch().prompts[:3], batch_size=2)
    rows = attempts.rows_of(attempts.judge(alone(), asked, []), 2)
    assert rows == RowUse(most=1, first_empty=0, empty=rows.empty, late=2)
    assert rows.empty > 4


def report_of(decode, asked=TWO_ROWS):
    """Return what `sv.watch` says of a decoder, right or wrong."""
    return attempts.watched(decode, asked)[1]()


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "right", "said"),
    [
        (
            "positions",
            lambda: batched(PLACES, PLACES),
            "in 2 of 2 requests every position is 1 too large",
        ),
        ("read again", alone, "keep K/V of all committed tokens but the last one"),
    ],
)
def test_a_right_text_with_a_broken_rule_gets_a_remark(name, right, said):
    report = report_of(right())
    assert (report.is_right, report.costs) == (True, [])
    report = report_of(REMARKED[name])
    assert report.is_right
    assert [cost.name for cost in report.costs] == [name]
    assert said in report.costs[0].sentence


def test_a_token_that_was_never_read_was_neither_moved_nor_cut():
    first = report_of(batched(*UNREAD)).faults[0]
    assert (first.rule, first.advice) == ("kv", ADVICE[UNREAD_ADVICE])
    assert "was never read" in first.cause
    assert "moved or cut" not in first.cause


def test_a_mask_that_all_queries_share_is_named_as_the_mask():
    report = report_of(SHARED_MASK)
    assert report.faults[0].rule == "mask"
    assert "token 0 sees slot 1" in report.faults[0].cause
    assert report.notes == []


def test_a_mask_that_cannot_be_seen_is_suspected_if_all_else_is_right(monkeypatch):
    for module in (capture, origins):
        monkeypatch.setattr(module, "visible", lambda *_: (None, "the mask is odd"))
    assert report_of(batched(PLACES, PLACES)).is_right
    report = report_of(SHARED_MASK)
    assert (report.faults[0].rule, report.faults[0].advice) == ("mask", ADVICE["mask"])
    assert "so suspect the mask" in report.faults[0].cause
    assert "the mask is odd" in report.notes[0]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("spare", "is_enough"), [(-1, True), (-2, False)])
def test_the_slots_of_exercise_1_are_enough_and_no_fewer(spare, is_enough):
    """A row needs prompt + budget - 1 + K slots, as the check says; here with a budget of 1."""
    caches = "SlotCache(size, slots), SlotCache(size, slots)"
    decode = batched(caches, caches.replace("slots)", f"slots + {spare})"))
    outcome = attempts.run(decode, Assignment(attempts.timed().prompts[:1], 4, 1))
    assert outcome.is_right is is_enough
    assert ("out of bounds" in outcome.error) is not is_enough


@pytest.mark.slow
def test_work_is_ragged_ends_and_has_no_near_ties():
    asked = attempts.batch()
    lengths = [len(prompt) for prompt in asked.prompts]
    assert len(set(lengths)) > 6
    assert sum(text[-1] == attempts.EOS for text in asked.due()) >= 2
    assert sum(attempts.EOS in prompt for prompt in asked.prompts[:8]) == 1
    assert sum(attempts.EOS in prompt for prompt in asked.prompts[8:]) == 1
    prompts = {prompt for each in (asked, *attempts.small(8)) for prompt in each.prompts}
    result = sv.generate(
        attempts.pair(),
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
            target(target.dummy_inputs["input_ids"])

    assert "may never end" in attempts.run(decode, ONE_TOKEN).error


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [7, [7], [[1], [2]]])
def test_outputs_that_are_no_texts_are_refused(outputs):
    with pytest.raises(WrongAnswerError):
        attempts.judge(lambda *_, **__: outputs, Assignment(((1, 457),)), [])


def test_the_board_grows_and_is_no_other_file(tmp_path):
    board = tmp_path / "runs" / "capstone.csv"
    assert len(attempts.leaderboard(board)) == 0
    attempts.add_attempt(board, 2, 8, Speed(100.0, (0.9, 0.8, 1.0)), "cpu")
    attempts.add_attempt(board, 3, 8, Speed(150.0, (1.2, 1.3)), "cpu")
    table = attempts.leaderboard(board)
    assert table["milestone"].tolist() == [2, 3]
    assert table["ratio"].tolist() == [0.9, 1.25]
    assert table[["low", "high"]].to_numpy().tolist() == [[0.8, 1.0], [1.2, 1.3]]
    other = tmp_path / "other.csv"
    for content in ("", "a,b\n1,2\n", "\x00\xff"):
        other.write_text(content, encoding="latin-1")
        with pytest.raises(ValueError, match="must be a leaderboard"):
            attempts.leaderboard(other)
        assert other.read_text(encoding="latin-1") == content


def test_turns_end_when_they_agree():
    assert not attempts.is_decided([1.5])
    assert attempts.is_decided([1.2, 1.3])
    assert attempts.is_decided([0.5, 0.6])
    assert not attempts.is_decided([1.2, 1.01])
    assert not attempts.is_decided([0.8, 1.3])
    assert attempts.is_decided([1.0] * attempts.MOST_TURNS)
