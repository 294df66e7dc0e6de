"""The step-through's sentences: their numbers are those of the record.

Facts of a hand-written run, and what the sentences of real runs say, compared with the tables.
"""

import functools
import re
from dataclasses import replace

import numpy as np
import pytest
from test_film import recorded
from tiny_run import TRACE, blank

import specviz as sv
from specviz.record.replay import Replay
from specviz.record.schema import ACCEPTED, BONUS, MODELS, PHASES, PROMPT, Array
from specviz.util.text import size, time_words
from specviz.views.stepper.batchwords import BATCH_WORDS
from specviz.views.stepper.columns import milliseconds
from specviz.views.stepper.phrases import all_of, names, span
from specviz.views.stepper.scene import Scene, Scenes
from specviz.views.stepper.sentences import MAX_LETTERS, Narrator

WAITING = re.compile(
    r"(\d+) sequences? waits?(?: for the first time|"
    r", request (\d+)(?: longest)?: passed over (\d+) times? before)\."
)
# By round and phase: the numbers in the sentences, and in the phrase of each row, in order.
BY_HAND = {
    (0, "schedule"): ("0 1 0 1 4 6 2 4 1 2", "0 3 4 3", "1 1 2 3"),
    (0, "draft"): ("2 2 2 1 0 1", "2 1 1", "2 1 1"),
    (0, "verify"): ("2 2 3 6 2 6 17 2", "3 2", "3 2"),
    (0, "accept"): ("0 0 2 1 2 1 3 0 2 1 1 2", "0 2 1 3 2 1", "2 2 3 5"),
    (0, "synchronise"): ("1 2 4 0.3 1.5 25", "4", "2 4"),  # 4 slots of 64 bytes and 3 of 16
    (1, "accept"): ("0 1 1 0 2 1 2 1", "1 2 2 5", "0 2 1 4"),
    (1, "synchronise"): ("0 6", "6", ""),
    (2, "schedule"): ("1 2 1 2 3 3 7 1 4", "0 7 6", "2 2 3 6"),
}


@pytest.mark.parametrize(("round", "phase"), BY_HAND)
def test_a_run_by_hand(round, phase):
    lasted = dict(zip(PHASES, (0.5, 1, 2, 1, 1.5), strict=True))
    ms = {f"{name}_ms": np.full(3, value, np.float32) for name, value in lasted.items()}
    timed = replace(TRACE, rounds=TRACE.rounds | ms)
    sentences, rows = Narrator(timed).describe(round, phase)
    numbers = [re.findall(r"\d+(?:\.\d+)?", text) for text in (sentences, *rows)]
    assert tuple(map(" ".join, numbers)) == BY_HAND[round, phase]


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
    "many drafts",
)
every_run = pytest.mark.parametrize("name", RUNS)


@functools.cache
def scenes(name: str) -> list[Scene]:
    found = Scenes(recorded(name))
    return [found[round] for round in range(recorded(name).num_rounds)]


def told(narrator: Narrator, rounds: int) -> list[tuple[int, str, str, list[str]]]:
    """(round, phase, sentences, phrases of the rows) of a whole run."""
    places = [(round, phase) for round in range(rounds) for phase in PHASES]
    return [(*place, *narrator.describe(*place)) for place in places]


@functools.cache
def described(name: str, *, violations: bool = False) -> list[tuple[int, str, str, list[str]]]:
    trace = recorded(name)
    found = sv.check_invariants(trace) if violations else ()
    return told(Narrator(trace, found), trace.num_rounds)


@pytest.mark.sweep(2)
@every_run
def test_sentences_are_sentences(name):
    for round, phase, sentences, rows in described(name, violations=True):
        scene = scenes(name)[round]
        assert len(sentences) <= MAX_LETTERS
        assert len(rows) == len(scene.rows)
        assert sentences.startswith(BATCH_WORDS[phase](scene)[0])  # the most important fact
        assert re.fullmatch(r"[A-Z][^\n]*\.", sentences)
        for words in (sentences, *rows):
            assert words.isprintable()
            assert not re.search(
                r"  |\bNone\b|nan|\b1 (rows|drafts|slots|rounds|forwards)\b|\b(row|request)s? \.|"
                r"True|False",
                words,
            ), words


@pytest.mark.sweep(4)
@every_run
def test_acceptance_names_the_rows_with_most_and_fewest(name):
    replay = Replay(recorded(name))
    apart = onward = 0
    for round, phase, sentences, words in described(name):
        if phase != "accept":
            continue
        rows = scenes(name)[round].rows
        working = {at: row for at, row in enumerate(rows) if row.gained}
        accepted = {at: row.accepted for at, row in working.items()}
        if len(set(accepted.values())) > 1:
            extremes = r"Rows \w+ (\d+) \(row (\d+)\) to (\d+) \(row (\d+)\) of \d+ drafts?;"
            fewest, worst, most, best = map(int, re.match(extremes, sentences).groups())
            assert accepted[best] == most == max(accepted.values())
            assert accepted[worst] == fewest == min(accepted.values())
        if found := re.search(r"All drafts were accepted in (\d+) of (\d+) rows", sentences):
            full = sum(row.accepted == row.drafted > 0 for row in working.values())
            assert [full, len(working)] == [int(number) for number in found.groups()]
        gains = [row.gained for row in working.values()]
        assert f"gained {span(gains, 'token')}." in sentences
        ends, resumed = (replay.frame(round, when).pending for when in ("accept", "synchronise"))
        for at, row in working.items():
            assert f"accepted {row.accepted} of {row.drafted} draft" in words[at]
            assert re.search(rf"gained {row.gained}\b", words[at])
            if found := re.search(r"slot \d+, (\d+) slots? left of row (\d+)", words[at]):
                assert ends[int(found[2])] - ends[at] == int(found[1]) > 0
                apart += 1
            if found := re.search(r"token goes to slot (\d+), after (\d+) holes?", words[at]):
                assert [resumed[at], resumed[at] - ends[at]] == [int(found[1]), int(found[2])]
                onward += 1
    masked = recorded(name).meta["strategy"] == "masking"
    assert (onward > 0) == masked
    # The rows of these gain the same, or end apart from the beginning.
    assert (apart > 0) == (not masked and name not in ("rollback", "inplace", "wrong mask"))


def kv_ends(name: str) -> list[tuple[int, Array, int]]:
    """(last slot whose K/V is said to count, states of the row's slots, slot of its last token)."""
    replay = Replay(recorded(name))
    found = []
    for round, phase, _, words in described(name):
        if phase != "accept":
            continue
        frame = replay.frame(round, phase)
        for at, row in enumerate(scenes(name)[round].rows):
            said = re.search(r"K/V ends at slot (\d+)", words[at])
            assert bool(said) == (row.gained > 0)
            if said:
                found.append((int(said[1]), frame.target.state[at], int(frame.pending[at])))
    return found


@every_run
def test_the_acceptance_says_where_the_rows_kv_ends(name):
    ends = kv_ends(name)
    committed = (PROMPT, ACCEPTED, BONUS)
    for end, states, last in ends:
        assert states[end] in committed
        # These throw right drafts away, or shift K/V, so that what is behind may be right by luck.
        if name not in ("rollback", "repadding", "slipped kv"):
            assert not np.isin(states[end + 1 :], committed).any()
        assert last - end in (0, 1)
    assert ends


@every_run
def test_moves_are_described_with_bytes_and_share_of_time(name):
    trace = recorded(name)
    moves = trace.moves
    slot_bytes = np.array([trace.meta["kv_bytes_per_slot"][model] for model in MODELS])
    lasted = milliseconds(trace)
    for round, phase, sentences, _ in described(name):
        if phase != "synchronise":
            continue
        here = (moves["round"] == round) & (moves["phase"] == PHASES.index(phase))
        if not here.any():
            assert sentences.startswith("Nothing")
            continue
        copied = int((moves["length"] * slot_bytes[moves["model"]])[here].sum())
        *_, ms = lasted[round]
        assert f": {size(copied)} of K/V copied. It took {ms:.1f} ms," in sentences
        assert f" {ms / sum(lasted[round]):.0%} of this round." in sentences


def test_from_10_000_ms_on_a_time_is_in_seconds():
    assert [time_words(ms) for ms in (0.04, 9999.4, 9999.5, 12_340)] == [
        *("0.0 ms", "9999.4 ms", "10.0 s", "12.3 s"),
    ]
    lasted = {f"{name}_ms": np.full(3, 12_340, np.float32) for name in PHASES}
    slow = replace(TRACE, rounds=TRACE.rounds | lasted)
    sentences, _ = Narrator(slow).describe(0, "synchronise")
    assert " It took 12.3 s, 20% of this round." in sentences


def test_milliseconds_are_the_record_s():
    trace = recorded("eqspec, static")
    columns = [trace.rounds[f"{phase}_ms"] for phase in PHASES]
    assert np.allclose(milliseconds(trace), np.stack(columns, axis=1), atol=6e-4)


def test_drift_is_described_before_the_position_is_fed():
    """The row's next round feeds its pending token with just that position."""
    name, found = "masking by column", 0
    feeds = recorded(name).feeds
    drift = re.compile(r"(?:Row (\d+)'s|its) next token gets position (\d+), its index is (\d+)")
    for round, phase, sentences, words in described(name):
        for at, text in enumerate([*words, sentences]):
            if not (said := drift.search(text)):
                continue
            assert phase == "synchronise"
            request = scenes(name)[round].rows[int(said[1] or at)].request
            fed = (feeds["round"] == round + 1) & (feeds["phase"] == 2)
            fed &= (feeds["request"] == request) & (feeds["index"] == int(said[3]))
            assert feeds["position"][fed].tolist() == [int(said[2])]
            found += 1
    assert found > 20
    assert not any("next token" in sentences for _, _, sentences, _ in described("lookup"))


def test_only_the_targets_token_is_called_its_own():
    """A run that keeps the draft's token instead must not have it called the target's.

    Where only K/V is wrong, the token is still the target's own.
    """
    told = [words for _, phase, words, _ in described("eqspec, static") if phase == "accept"]
    assert any("the target's own token" in words for words in told)
    name = "wrong bonus"
    told = {round: words for round, phase, words, _ in described(name) if phase == "accept"}
    wrong = {each.round for each in sv.check_invariants(recorded(name)) if each.rule == "bonus"}
    assert wrong
    assert all("with one more token" in told[round] for round in wrong)


def test_without_judging_positions_are_not_described():
    """All else stays the same, except whose choice a token is."""
    name, differing = "masking by column", 0
    plain = told(Narrator(recorded(name), judge=False), recorded(name).num_rounds)
    for one, other in zip(described(name), plain, strict=True):
        round, phase, sentences, words = one
        _, _, plain_sentences, plain_words = other
        silent = [re.sub(r"; its next token gets position .*", "", text) for text in words]
        assert plain_words == silent
        assert "next token" not in plain_sentences
        first = BATCH_WORDS[phase](scenes(name)[round])[0]
        assert plain_sentences.startswith(first.replace("the target's own", "one more"))
        differing += sentences != plain_sentences
    assert differing > 5


@pytest.mark.parametrize("name", ["exspec", "exspec, partial", "exspec, wait"])
def test_the_pools_decision_is_described_with_its_reason(name):
    trace, openings, waits = recorded(name), set(), set()
    for round, phase, sentences, words in described(name):
        if phase != "schedule":
            continue
        here = trace.pool["round"] == round
        pool = {column: values[here] for column, values in trace.pool.items()}
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
    entered, left, before = [], [], set()
    for round, phase, sentences, words in described(name):
        if phase != "schedule":
            continue
        found = (re.match(r"request (\d+) entered", text) for text in words)
        entered += [int(each[1]) for each in found if each]
        here = {row.request for row in scenes(name)[round].rows}
        gone = sorted(before - here)
        left += gone
        before = here
        if gone:
            assert sentences.lower().startswith(f"{names(gone, 'request')} finished")
    assert sorted(entered) == sorted([*left, *before]) == list(range(recorded(name).num_requests))


@every_run
def test_violations_are_described_where_they_happened(name):
    found = sv.check_invariants(recorded(name))
    for round, phase, sentences, words in described(name, violations=True):
        here = [each for each in found if (each.round, each.phase) == (round, phase)]
        assert ("Violation in " in sentences) == bool(here)
        for at, text in enumerate(words):
            _, _, rules = text.partition("; violated: ")
            assert set(rules.split(", ")) - {""} == {each.rule for each in here if each.row == at}
        if here:
            rows = sorted({each.row for each in here if each.rule == here[0].rule})
            assert f"Violation in {names(rows, 'row')}: " in sentences
    assert bool(found) == (not recorded(name).meta["valid"])
    texts = (text for _, _, sentences, words in described(name) for text in (sentences, *words))
    assert not any("iolat" in text for text in texts)


def test_a_round_without_rows_has_sentences():
    rounds = {name: np.zeros(1, values.dtype) for name, values in TRACE.rounds.items()}
    tables = {table: blank(table, 0) for table in ("rows", "feeds", "holes", "moves")}
    trace = replace(TRACE, rounds=rounds, **tables)
    for _, _, sentences, words in told(Narrator(trace), 1):
        assert sentences
        assert words == []


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


@pytest.mark.parametrize(
    ("phrase", "words"),
    [
        (span([], "slot"), "0 slots"),
        (span([1], "slot"), "1 slot"),
        (span([2], "slot"), "2 slots"),
        (span([3, 1], "slot"), "1 to 3 slots"),
        (size(0), "0.0 kB"),
        (size(99_999), "100.0 kB"),
        (size(100_000), "0.1 MB"),
        (all_of([4]), "row 4"),
        (all_of([0, 1]), "both rows"),
        (all_of([0, 1, 2]), "all 3 rows"),
    ],
)
def test_phrases(phrase, words):
    assert phrase == words
