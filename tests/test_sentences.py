"""What is said of a phase: exact sentences of a run written by hand, and the numbers in the sentences of real runs against the record."""

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
from specviz.views.stepper.phrases import amount, everyone, names, span
from specviz.views.stepper.scene import Scenes, milliseconds
from specviz.views.stepper.sentences import ROOM, Narrator

WAITING = re.compile(
    r"(\d+) waits?(?: for the first time|, request (\d+)(?: longest)?: left out (once|\d+) (?:times )?before)\."
)
BY_HAND = {
    (0, "schedule"): (
        "Requests 0 and 1 enter as rows 0 and 1: 4 of their 6 prompt tokens are prefilled, each last one is pending. "
        "Rows have 2 to 4 tokens; row 1 has 2 slots of padding in front.",
        "request 0 enters, 3 of 4 prompt tokens prefilled; the last one is pending for slot 3",
        "request 1 enters, 1 of 2 prompt tokens prefilled; the last one is pending for slot 3",
    ),
    (0, "draft"): (
        "The draft model proposes 2 tokens for each of 2 rows in 2 forwards; the target has not read them yet. "
        "It is least sure of row 0's draft 1: q = 1.",
        "2 drafts, q = 1 to 1",
        "2 drafts, q = 1 to 1",
    ),
    (0, "verify"): (
        "One target forward reads each row's pending token and 2 drafts, 2 × 3 tokens, over 6 slots. "
        "17% of these 2 × 6 slots hold nothing for their row: 2 padding.",
        "the target read its pending token in slot 3 and 2 drafts behind it",
        "the target read its pending token in slot 3 and 2 drafts behind it",
    ),
    (0, "accept"): (
        "Row 1 accepts 2 of 2 drafts, row 0 none; with one more token, rows gain 1 to 3. Row 0's tokens now end 2 slots before row 1's.",
        "accepted 0 of 2 drafts, gained 1; ends 2 slots before row 1",
        "accepted 2 of 2 drafts, gained 3; ends in slot 6",
    ),
    (0, "synchronise"): (
        "Row 1 moves by 2 slots so that all end in slot 4 again: 0.3 kB of K/V copied. That took 1.5 ms, 25% of this round.",  # 4*64 + 3*16
        "stayed where it was; ends in slot 4",
        "moved 2 slots to the left; ends in slot 4",
    ),
    (1, "accept"): (
        "Row 0 accepts 1 of 2 drafts, row 1 none; with one more token, rows gain 1 to 2. Row 1 ends with EOS.",
        "accepted 1 of 2 drafts, gained 2; ends in slot 6",
        "accepted 0 of 2 drafts, gained 1; ends with EOS",
    ),
    (1, "synchronise"): (
        "Nothing has to move: row 0 is alone, and now ends in slot 6.",
        "stayed where it was; ends in slot 6",
        "leaves: its request has finished",
    ),
    (2, "schedule"): (
        "Request 1 has finished and left, request 2 enters as row 1: 2 of its 3 prompt tokens are prefilled, the last one is pending. "
        "Rows have 3 to 7 tokens; row 1 has 4 slots of padding in front.",
        "request 0 goes on with 7 tokens; the last one is pending for slot 6",
        "request 2 enters, 2 of 3 prompt tokens prefilled; the last one is pending for slot 6",
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
    told, rows = Narrator(timed(TRACE)).tell(round, phase)
    assert (told, *rows) == BY_HAND[round, phase]
    assert told.startswith(sentence(timed(TRACE), round, phase))


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


def tell(trace: Trace, violations=()):
    """(round, phase, words, words of the rows) of a whole run."""
    narrator = Narrator(trace, violations)
    return [
        (round, phase, *narrator.tell(round, phase))
        for round in range(trace.num_rounds)
        for phase in PHASES
    ]


@every_run
def test_sentences_are_sentences(name):
    trace = recorded(name)
    for round, phase, told, rows in tell(trace, sv.check_invariants(trace)):
        assert len(told) <= ROOM
        assert len(rows) == trace.rounds["batch"][round]
        assert told.startswith(sentence(trace, round, phase))
        assert re.fullmatch(r"[A-Z][^\n]*\.", told)
        for words in (told, *rows):
            assert words.isprintable()
            assert not re.search(
                r"  |\bNone\b|nan|\b1 (rows|drafts|slots|rounds|forwards)\b|\b(row|request)s? \.|True|False",
                words,
            ), words


@every_run
def test_acceptance_is_told_with_the_rows_that_matter(name):
    trace = recorded(name)
    apart = onward = 0
    for round, phase, told, words in tell(trace):
        if phase != "accept":
            continue
        rows = Scenes(trace)[round].rows
        working = [row for row in rows if row.gained]
        accepted = {at: row.accepted for at, row in enumerate(rows) if row.gained}
        if len(set(accepted.values())) > 1:
            best, most, worst, least = re.match(
                r"Row (\d+) \w+ (\d+) of \d+ drafts?, row (\d+) (?:only )?(\w+);", told
            ).groups()
            assert accepted[int(best)] == int(most) == max(accepted.values())
            assert (
                accepted[int(worst)]
                == (0 if least == "none" else int(least))
                == min(accepted.values())
            )
        assert re.search(rf"gains? {span([row.gained for row in working])}\.", told)
        for at, row in enumerate(rows):
            if row.gained:
                assert f"accepted {row.accepted} of {row.drafted} draft" in words[at]
                assert re.search(rf"gained {row.gained}\b", words[at])
            if found := re.search(r"ends (\d+) slots? before row (\d+)", words[at]):
                pending = Replay(trace).frame(round, "accept").pending
                assert pending[int(found[2])] - pending[at] == int(found[1]) > 0
                apart += 1
            if found := re.search(
                r"its last token goes to slot (\d+), behind (\d+) holes?", words[at]
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
def test_what_moved_is_told_with_its_bytes_and_its_share(name):
    trace = recorded(name)
    ms, moves = dict(zip(PHASES, zip(*milliseconds(trace), strict=True), strict=True)), trace.moves
    size = np.array([trace.meta["kv_bytes_per_slot"][model] for model in MODELS])
    for round, phase, told, _ in tell(trace):
        if phase != "synchronise":
            continue
        here = (moves["round"] == round) & (moves["phase"] == PHASES.index(phase))
        if not here.any():
            assert told.startswith(("Nothing", "Every row has finished"))
            continue
        copied = int((moves["length"] * size[moves["model"]])[here].sum())
        assert f": {amount(copied)} of K/V copied. That took {ms[phase][round]:.1f} ms," in told
        assert (
            f" {ms[phase][round] / sum(values[round] for values in ms.values()):.0%} of this round."
            in told
        )


def test_milliseconds_are_the_record_s():
    ms = np.array(milliseconds(recorded("eqspec, static")))
    assert np.allclose(
        ms,
        np.stack([recorded("eqspec, static").rounds[f"{phase}_ms"] for phase in PHASES], axis=1),
        atol=6e-4,
    )


def test_positions_that_will_run_ahead_are_told_before_they_are_fed():
    """The row's next round feeds its pending token with just that position."""
    trace, found = recorded("masking by column"), 0
    feeds = trace.feeds
    for round, phase, told, words in tell(trace):
        rows = Scenes(trace)[round].rows
        for text, at in [(told, None), *((text, at) for at, text in enumerate(words))]:
            drift = re.search(
                r"next token (?:will get|gets) position (\d+) (?:where its index is|for index) (\d+)",
                text,
            )
            if not drift:
                continue
            assert phase == "synchronise"
            request = rows[
                int(re.search(r"Row (\d+)'s next", told)[1]) if at is None else at
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
    assert not any("next token" in told for _, _, told, _ in tell(recorded("eqspec")))


def test_only_the_targets_token_is_called_its_own():
    """In a run that keeps the draft's instead, all rows that rejected one have a wrong token; not so where K/V alone goes wrong."""
    for name, rounds in (
        ("wrong bonus", {"one more token"}),
        ("eqspec, static", {"the target's own token"}),
    ):
        told = [words for _, phase, words, _ in tell(recorded(name)) if phase == "accept"]
        assert rounds <= {
            found[0]
            for words in told
            if (found := re.search("one more token|the target's own token", words))
        }
    trace = recorded("wrong bonus")
    for each in sv.check_invariants(trace):
        assert (
            each.rule != "bonus"
            or "with one more token" in Narrator(trace).tell(each.round, "accept")[0]
        )


def test_who_does_not_judge_does_not_tell_of_positions():
    """And all else as it is, but for whose choice a token is."""
    trace = recorded("masking by column")
    judging, other = Narrator(trace), Narrator(trace, judge=False)
    differing = 0
    for round in range(trace.num_rounds):
        for phase in PHASES:
            (told, words), (plain, plain_words) = (
                judging.tell(round, phase),
                other.tell(round, phase),
            )
            assert plain_words == [
                re.sub(r"; its next token gets position .*", "", text) for text in words
            ]
            assert "next token" not in plain
            assert plain.startswith(
                re.sub("the target's own token", "one more token", sentence(trace, round, phase))
            )
            differing += told != plain
    assert differing > 5


@pytest.mark.parametrize("name", ["exspec", "exspec, partial", "exspec, wait"])
def test_the_pools_decision_is_told_with_its_reason(name):
    trace, openings, waits = recorded(name), set(), set()
    for round, phase, told, words in tell(trace):
        if phase != "schedule":
            continue
        pool = {
            column: values[trace.pool["round"] == round] for column, values in trace.pool.items()
        }
        lengths, chosen = pool["length"].tolist(), pool["chosen"].astype(bool)
        openings.add(told.split(":")[0])
        if found := re.match(
            r"Fallback: no (?:two|more than (\d+)) of the pool's (\d+) rows", told
        ):
            assert max(map(lengths.count, lengths)) == int(found[1] or 1) < min(4, len(lengths))
            assert int(found[2]) == len(lengths)
        if told.startswith("Grouped"):
            assert len(set(np.array(lengths)[chosen].tolist())) == 1
        if found := WAITING.search(told):
            assert int(found[1]) == (~chosen).sum()
            times = 0 if found[2] is None else 1 if found[3] == "once" else int(found[3])
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
    """A request that left is told in the round after; those of the last round have nobody to tell of them."""
    trace, entered, left = recorded(name), [], []
    for round, phase, told, words in tell(trace):
        if phase == "schedule":
            entered += [
                int(found[1])
                for text in words
                if (found := re.match(r"request (\d+) enters", text))
            ]
            before = {row.request for row in Scenes(trace)[round - 1].rows} if round else set()
            gone = sorted(before - {row.request for row in Scenes(trace)[round].rows})
            left += gone
            if gone:
                assert told.lower().startswith(f"{names(gone, 'request')} ha")
    last = [row.request for row in Scenes(trace)[trace.num_rounds - 1].rows]
    assert sorted(entered) == sorted(left + last) == list(range(trace.num_requests))


@every_run
def test_violations_are_told_where_they_happened_and_nowhere_else(name):
    trace = recorded(name)
    found = sv.check_invariants(trace)
    broken = {(each.round, each.phase) for each in found}
    for round, phase, told, words in tell(trace, found):
        here = [each for each in found if (each.round, each.phase) == (round, phase)]
        assert ("Broken in " in told) == ((round, phase) in broken)
        for at, text in enumerate(words):
            rules = sorted({each.rule for each in here if each.row == at})
            told_rules = re.search(r"; broken: (.*)", text)
            assert sorted(told_rules[1].split(", ") if told_rules else []) == rules
        if here:
            rows = sorted({each.row for each in here if each.rule == here[0].rule})
            assert f"Broken in {names(rows, 'row')}: " in told
    assert bool(broken) == (not trace.meta["valid"])
    assert not any("roken" in text for _, _, told, words in tell(trace) for text in (told, *words))


def test_a_round_without_rows_has_sentences():
    rounds = {name: np.zeros(1, values.dtype) for name, values in TRACE.rounds.items()}
    trace = replace(
        TRACE,
        rounds=rounds,
        **{table: blank(table, 0) for table in ("rows", "feeds", "holes", "moves")},
    )
    assert [(bool(told), words) for _, _, told, words in tell(trace)] == [(True, [])] * 5


@pytest.mark.parametrize("round", [-1, 3])
def test_what_does_not_exist_is_not_told(round):
    with pytest.raises(ValueError, match=f"no round {round}: rounds run from 0 to 2"):
        Narrator(TRACE).tell(round, "accept")
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
    assert [amount(size) for size in (0, 99_999, 100_000)] == ["0.0 kB", "100.0 kB", "0.1 MB"]
    assert [everyone(rows) for rows in ([4], [0, 1], [0, 1, 2])] == [
        "row 4",
        "both rows",
        "all 3 rows",
    ]
