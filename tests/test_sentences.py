"""The step-through's sentences: exact ones of a hand-written run, and their numbers in real runs.

The numbers of real runs are compared with the record.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from test_film import recorded
from tiny_run import TRACE, blank

import specviz as sv
from specviz.record.replay import Replay
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace
from specviz.views.stepper.batchwords import BATCH_WORDS
from specviz.views.stepper.columns import milliseconds
from specviz.views.stepper.phrases import all_of, names, size, span
from specviz.views.stepper.scenes import Scenes
from specviz.views.stepper.sentences import MAX_LETTERS, Narrator

WAITING = re.compile(
    r"(\d+) sequences? waits?(?: for the first time|"
    r", request (\d+)(?: longest)?: passed over (\d+) times? before)\."
)
BY_HAND = {
    (0, "schedule"): (
        "Requests 0 and 1 entered as rows 0 and 1: 4 of their 6 prompt tokens were prefilled, "
        "the last one of each is pending. Rows have 2 to 4 tokens; row 1 has 2 slots of padding.",
        "request 0 entered, 3 of 4 prompt tokens prefilled; its last token is pending, for slot 3",
        "request 1 entered, 1 of 2 prompt tokens prefilled; its last token is pending, for slot 3",
    ),
    (0, "draft"): (
        "The draft model proposed 2 tokens for each of 2 rows in 2 forwards; "
        "the target has not read them yet. The least probable token is draft 1 of row 0, q = 1.",
        "2 drafts, q = 1 to 1",
        "2 drafts, q = 1 to 1",
    ),
    (0, "verify"): (
        "One target forward read each row's pending token and 2 drafts, 2 × 3 tokens, over 6 slots."
        " Of the 2 × 6 slots, 17% hold no token of their row: 2 padding.",
        "the target read its pending token in slot 3 and 2 drafts after it",
        "the target read its pending token in slot 3 and 2 drafts after it",
    ),
    (0, "accept"): (
        "Rows accepted 0 (row 0) to 2 (row 1) of 2 drafts; with one more token, "
        "they gained 1 to 3 tokens. Row 0 now ends 2 slots left of row 1. "
        "All drafts were accepted in 1 of 2 rows.",
        "accepted 0 of 2 drafts, gained 1 token; ends 2 slots left of row 1",
        "accepted 2 of 2 drafts, gained 3 tokens; ends in slot 6",
    ),
    (0, "synchronise"): (
        # 4 slots of 64 bytes and 3 of 16
        "Row 1 moved by 2 slots so that all rows end in slot 4 again: 0.3 kB of K/V copied. "
        "It took 1.5 ms, 25% of this round.",
        "did not move; ends in slot 4",
        "moved 2 slots to the left; ends in slot 4",
    ),
    (1, "accept"): (
        "Rows accepted 0 (row 1) to 1 (row 0) of 2 drafts; with one more token, "
        "they gained 1 to 2 tokens. Row 1 finished with EOS.",
        "accepted 1 of 2 drafts, gained 2 tokens; ends in slot 6",
        "accepted 0 of 2 drafts, gained 1 token; finished with EOS",
    ),
    (1, "synchronise"): (
        "Nothing had to move: row 0 is alone and ends in slot 6.",
        "did not move; ends in slot 6",
        "leaves the batch: its request has finished",
    ),
    (2, "schedule"): (
        "Request 1 finished and left; request 2 entered as row 1: 2 of its 3 prompt tokens "
        "were prefilled, the last one is pending. Rows have 3 to 7 tokens; "
        "row 1 has 4 slots of padding.",
        "request 0 continues with 7 tokens; its last token is pending, for slot 6",
        "request 2 entered, 2 of 3 prompt tokens prefilled; its last token is pending, for slot 6",
    ),
}


def sentence(trace: Trace, round: int, phase: str) -> str:
    """The first sentence of a phase, which states the most important fact."""
    return BATCH_WORDS[phase](Scenes(trace)[round])[0]


def timed(trace: Trace) -> Trace:
    """The hand-written run, in rounds of 6 ms of which synchronising takes 1.5."""
    lasted = dict(zip(PHASES, (0.5, 1, 2, 1, 1.5), strict=True))
    return replace(
        trace,
        rounds=trace.rounds
        | {f"{phase}_ms": np.full(3, ms, np.float32) for phase, ms in lasted.items()},
    )


@pytest.mark.parametrize(("round", "phase"), BY_HAND)
def test_a_run_by_hand(round, phase):
    sentences, rows = Narrator(timed(TRACE)).describe(round, phase)
    assert (sentences, *rows) == BY_HAND[round, phase]
    assert sentences.startswith(sentence(timed(TRACE), round, phase))


RUNS = (
    "rollback",
    "masking by column",
    "repadding",
    "eqspec, static",
    "exspec, wait",
    "inplace",
    "slipped kv",
    "wrong mask",
    "lookup",
    "many drafts, small budgets",
)
every_run = pytest.mark.parametrize("name", RUNS)


def described(trace: Trace, violations=()):
    """(round, phase, sentences, phrases of the rows) of a whole run."""
    narrator = Narrator(trace, violations)
    return [
        (round, phase, *narrator.describe(round, phase))
        for round in range(trace.num_rounds)
        for phase in PHASES
    ]


@every_run
def test_sentences_are_sentences(name):
    trace = recorded(name)
    for round, phase, sentences, rows in described(trace, sv.check_invariants(trace)):
        assert len(sentences) <= MAX_LETTERS
        assert len(rows) == trace.rounds["batch"][round]
        assert sentences.startswith(sentence(trace, round, phase))
        assert re.fullmatch(r"[A-Z][^\n]*\.", sentences)
        for words in (sentences, *rows):
            assert words.isprintable()
            assert not re.search(
                r"  |\bNone\b|nan|\b1 (rows|drafts|slots|rounds|forwards)\b|\b(row|request)s? \.|"
                r"True|False",
                words,
            ), words


@every_run
def test_acceptance_names_the_rows_with_most_and_fewest(name):
    trace = recorded(name)
    apart = onward = 0
    for round, phase, sentences, words in described(trace):
        if phase != "accept":
            continue
        rows = Scenes(trace)[round].rows
        working = [row for row in rows if row.gained]
        accepted = {at: row.accepted for at, row in enumerate(rows) if row.gained}
        if len(set(accepted.values())) > 1:
            fewest, worst, most, best = map(
                int,
                re.match(
                    r"Rows \w+ (\d+) \(row (\d+)\) to (\d+) \(row (\d+)\) of \d+ drafts?;",
                    sentences,
                ).groups(),
            )
            assert accepted[best] == most == max(accepted.values())
            assert accepted[worst] == fewest == min(accepted.values())
        if found := re.search(r"All drafts were accepted in (\d+) of (\d+) rows", sentences):
            full = sum(row.accepted == row.drafted > 0 for row in working)
            assert [full, len(working)] == [int(number) for number in found.groups()]
        assert re.search(rf"gained {span([row.gained for row in working], 'token')}\.", sentences)
        for at, row in enumerate(rows):
            if row.gained:
                assert f"accepted {row.accepted} of {row.drafted} draft" in words[at]
                assert re.search(rf"gained {row.gained}\b", words[at])
            if found := re.search(r"ends (\d+) slots? left of row (\d+)", words[at]):
                pending = Replay(trace).frame(round, "accept").pending
                assert pending[int(found[2])] - pending[at] == int(found[1]) > 0
                apart += 1
            if found := re.search(
                r"its last token goes to slot (\d+), after (\d+) holes?", words[at]
            ):
                ends = [
                    int(Replay(trace).frame(round, when).pending[at])
                    for when in ("accept", "synchronise")
                ]
                assert [ends[1], ends[1] - ends[0]] == [int(number) for number in found.groups()]
                onward += 1
    masked = trace.meta["strategy"] == "masking"
    assert (onward > 0) == masked
    assert (apart > 0) == (
        not masked and name not in ("rollback", "inplace", "wrong mask")
    )  # whose rows gain the same, or end apart


@every_run
def test_moves_are_described_with_bytes_and_share_of_time(name):
    trace = recorded(name)
    ms, moves = dict(zip(PHASES, zip(*milliseconds(trace), strict=True), strict=True)), trace.moves
    slot_bytes = np.array([trace.meta["kv_bytes_per_slot"][model] for model in MODELS])
    for round, phase, sentences, _ in described(trace):
        if phase != "synchronise":
            continue
        here = (moves["round"] == round) & (moves["phase"] == PHASES.index(phase))
        if not here.any():
            assert sentences.startswith("Nothing")
            continue
        copied = int((moves["length"] * slot_bytes[moves["model"]])[here].sum())
        assert f": {size(copied)} of K/V copied. It took {ms[phase][round]:.1f} ms," in sentences
        assert (
            f" {ms[phase][round] / sum(values[round] for values in ms.values()):.0%} of this round."
            in sentences
        )


def test_milliseconds_are_the_record_s():
    ms = np.array(milliseconds(recorded("eqspec, static")))
    assert np.allclose(
        ms,
        np.stack([recorded("eqspec, static").rounds[f"{phase}_ms"] for phase in PHASES], axis=1),
        atol=6e-4,
    )


def test_drift_is_described_before_the_position_is_fed():
    """The row's next round feeds its pending token with just that position."""
    trace, found = recorded("masking by column"), 0
    feeds = trace.feeds
    for round, phase, sentences, words in described(trace):
        rows = Scenes(trace)[round].rows
        for text, at in [(sentences, None), *((text, at) for at, text in enumerate(words))]:
            drift = re.search(
                r"next token gets position (\d+), its index is (\d+)",
                text,
            )
            if not drift:
                continue
            assert phase == "synchronise"
            request = rows[
                int(re.search(r"Row (\d+)'s next", sentences)[1]) if at is None else at
            ].request
            position, index = map(int, drift.groups())
            fed = (
                (feeds["round"] == round + 1)
                & (feeds["request"] == request)
                & (feeds["index"] == index)
                & (feeds["phase"] == 2)
            )
            assert feeds["position"][fed].tolist() == [position]
            found += 1
    assert found > 20
    assert not any(
        "next token" in sentences for _, _, sentences, _ in described(recorded("eqspec"))
    )


def test_only_the_targets_token_is_called_its_own():
    """A run that keeps the draft's token instead must not have it called the target's.

    Where only K/V is wrong, the token is still the target's own.
    """
    for name, rounds in (
        ("wrong bonus", {"one more token"}),
        ("eqspec, static", {"the target's own token"}),
    ):
        sentences = [words for _, phase, words, _ in described(recorded(name)) if phase == "accept"]
        assert rounds <= {
            found[0]
            for words in sentences
            if (found := re.search("one more token|the target's own token", words))
        }
    trace = recorded("wrong bonus")
    for each in sv.check_invariants(trace):
        assert (
            each.rule != "bonus"
            or "with one more token" in Narrator(trace).describe(each.round, "accept")[0]
        )


def test_without_judging_positions_are_not_described():
    """All else stays the same, except whose choice a token is."""
    trace = recorded("masking by column")
    judging, other = Narrator(trace), Narrator(trace, judge=False)
    differing = 0
    for round in range(trace.num_rounds):
        for phase in PHASES:
            (sentences, words), (plain, plain_words) = (
                judging.describe(round, phase),
                other.describe(round, phase),
            )
            assert plain_words == [
                re.sub(r"; its next token gets position .*", "", text) for text in words
            ]
            assert "next token" not in plain
            assert plain.startswith(
                re.sub("the target's own token", "one more token", sentence(trace, round, phase))
            )
            differing += sentences != plain
    assert differing > 5


@pytest.mark.parametrize("name", ["exspec", "exspec, partial", "exspec, wait"])
def test_the_pools_decision_is_described_with_its_reason(name):
    trace, openings, waits = recorded(name), set(), set()
    for round, phase, sentences, words in described(trace):
        if phase != "schedule":
            continue
        pool = {
            column: values[trace.pool["round"] == round] for column, values in trace.pool.items()
        }
        lengths, chosen = pool["length"].tolist(), pool["chosen"].astype(bool)
        openings.add(sentences.split(":")[0])
        if found := re.match(
            r"Fallback: no (?:two|more than (\d+)) of the pool's (\d+) sequences", sentences
        ):
            assert max(map(lengths.count, lengths)) == int(found[1] or 1) < min(4, len(lengths))
            assert int(found[2]) == len(lengths)
        if sentences.startswith("Grouped"):
            assert len(set(np.array(lengths)[chosen].tolist())) == 1
        if found := WAITING.search(sentences):
            assert int(found[1]) == (~chosen).sum()
            times = 0 if found[2] is None else int(found[3])
            assert times == pool["waited"][~chosen].max()
            assert found[2] is None or pool["waited"][pool["request"] == int(found[2])] == times
            waits |= {times}
        else:
            assert chosen.all()
        assert len(words) == chosen.sum()
    assert "Fallback" in openings
    assert {0, 1} <= waits
    assert ("Overdue" in openings) == (name == "exspec, wait")


@pytest.mark.parametrize("name", ["rollback", "masking by column", "eqspec, static", "inplace"])
def test_every_request_enters_once_and_leaves(name):
    """The round after reports that a request left; those of the last round have no round after."""
    trace, entered, left = recorded(name), [], []
    for round, phase, sentences, words in described(trace):
        if phase == "schedule":
            entered += [
                int(found[1])
                for text in words
                if (found := re.match(r"request (\d+) entered", text))
            ]
            before = {row.request for row in Scenes(trace)[round - 1].rows} if round else set()
            gone = sorted(before - {row.request for row in Scenes(trace)[round].rows})
            left += gone
            if gone:
                assert sentences.lower().startswith(f"{names(gone, 'request')} finished")
    last = [row.request for row in Scenes(trace)[trace.num_rounds - 1].rows]
    assert sorted(entered) == sorted(left + last) == list(range(trace.num_requests))


@every_run
def test_violations_are_described_where_they_happened(name):
    trace = recorded(name)
    found = sv.check_invariants(trace)
    broken = {(each.round, each.phase) for each in found}
    for round, phase, sentences, words in described(trace, found):
        here = [each for each in found if (each.round, each.phase) == (round, phase)]
        assert ("Violation in " in sentences) == ((round, phase) in broken)
        for at, text in enumerate(words):
            rules = sorted({each.rule for each in here if each.row == at})
            told_rules = re.search(r"; violated: (.*)", text)
            assert sorted(told_rules[1].split(", ") if told_rules else []) == rules
        if here:
            rows = sorted({each.row for each in here if each.rule == here[0].rule})
            assert f"Violation in {names(rows, 'row')}: " in sentences
    assert bool(broken) == (not trace.meta["valid"])
    assert not any(
        "iolat" in text
        for _, _, sentences, words in described(trace)
        for text in (sentences, *words)
    )


def test_a_round_without_rows_has_sentences():
    rounds = {name: np.zeros(1, values.dtype) for name, values in TRACE.rounds.items()}
    trace = replace(
        TRACE,
        rounds=rounds,
        **{table: blank(table, 0) for table in ("rows", "feeds", "holes", "moves")},
    )
    assert [(bool(sentences), words) for _, _, sentences, words in described(trace)] == [
        (True, [])
    ] * 5


@pytest.mark.parametrize("round", [-1, 3])
def test_a_round_that_does_not_exist_is_refused(round):
    with pytest.raises(ValueError, match=f"round must be from 0 to 2, got {round}"):
        Narrator(TRACE).describe(round, "accept")
    with pytest.raises(ValueError, match="trace=None: this run was not recorded"):
        Narrator(None)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([3], "row 3"),
        ([0, 2], "rows 0 and 2"),
        ([0, 1], "rows 0 and 1"),
        ([0, 1, 2], "rows 0 to 2"),
        ([0, 2, 5, 7], "rows 0, 2, 5 and 7"),
        ([0, 2, 5, 7, 9], "5 rows"),
    ],
)
def test_names(numbers, words):
    assert names(numbers, "row") == words


def test_phrases():
    assert [span(values, "slot") for values in ([], [1], [2], [3, 1])] == [
        "0 slots",
        "1 slot",
        "2 slots",
        "1 to 3 slots",
    ]
    assert [size(size_bytes) for size_bytes in (0, 99_999, 100_000)] == [
        "0.0 kB",
        "100.0 kB",
        "0.1 MB",
    ]
    assert [all_of(rows) for rows in ([4], [0, 1], [0, 1, 2])] == [
        "row 4",
        "both rows",
        "all 3 rows",
    ]
