"""Replays, films and sentences of runs whose drafts branch.

Slots, fates and words are worked out again from the record's tables, without the readers' own code.
"""

import functools
import re
from typing import Any

import numpy as np
import pytest
from conftest import make_pair, make_prompts
from tiny_run import TRACE

import specviz as sv
from specviz import metrics
from specviz.record.replay import Frame, Replay
from specviz.record.schema import ACCEPTED, BONUS, DRAFTED, PHASES, PROMPT, STALE, STATES
from specviz.record.trace import Trace
from specviz.record.trees import depths, leaves
from specviz.views.stepper.film import film
from specviz.views.stepper.lanes import KINDS

PROMPTS = [prompt for prompt in make_prompts() if len(prompt) < 20]
DRAFT, VERIFY, ACCEPT = (PHASES.index(phase) for phase in ("draft", "verify", "accept"))
TREE = sv.drafter("tree", depth=4, width=2, children=2)
# By name: strategy, its options, what else is given to `generate`.
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "inplace": ("inplace", {}, {}),
    "eqspec": ("eqspec", {}, {}),
    "masking": ("masking", {}, {}),
    "rollback": ("rollback", {}, {}),
    "static": ("inplace", {}, {"drafter": "static_tree"}),
    "sampled": ("masking", {}, {"sampling": sv.SamplingParams(0.8)}),
    "selected": (
        "inplace",
        {},
        {"selector": sv.selector("tetris", extra=2), "num_draft_tokens": 4},
    ),
    "compaction": ("inplace", {"break_invariant": "compaction"}, {}),
}
VALID = [name for name in RUNS if name != "compaction"]


@functools.cache
def recorded(name: str) -> Trace:
    strategy, options, more = RUNS[name]
    given = {"drafter": TREE, "num_draft_tokens": 6, "batch_size": 4, "max_new_tokens": 12}
    chosen = sv.strategy(strategy, **options)
    run = sv.generate(
        make_pair("llama"), PROMPTS, **given | more, strategy=chosen, record=True, progress=False
    )
    return run.trace


@functools.cache
def filmed(name: str) -> dict[str, Any]:
    return film(recorded(name), judge=False)


@functools.cache
def frames(name: str) -> list[Frame]:
    return list(Replay(recorded(name)).frames())


def entry_of(trace: Trace, number: int, row: int) -> dict[str, Any]:
    """Return row `row` of the batch in a round, as plain values."""
    at = np.flatnonzero(trace.rows["round"] == number)[row]
    return {name: values[at].tolist() for name, values in trace.rows.items()}


def line(parents: list[int], draft: int) -> list[int]:
    """Return a draft and all that it follows, the first one first."""
    found = [draft]
    while parents[found[0]] >= 0:
        found.insert(0, parents[found[0]])
    return found


every_run = pytest.mark.parametrize("name", RUNS)
valid_run = pytest.mark.parametrize("name", VALID)


@pytest.mark.slow
def test_the_runs_hold_what_the_tests_are_about():
    """Branches that are left, moves of the target's K/V, and holes between accepted drafts."""
    for name in RUNS:
        rows = recorded(name).rows
        assert (leaves(rows["parents"], rows["drafted"]) > 1).any(), name
    target = recorded("inplace").moves
    assert ((target["phase"] == ACCEPT) & (target["model"] == 0)).any()
    masked = recorded("masking")
    assert not ((masked.moves["phase"] == ACCEPT) & (masked.moves["model"] == 0)).any()
    for name in ("masking", "compaction"):
        path = recorded(name).rows["path"]
        assert ((path > np.arange(path.shape[1])).any(1)).any(), name


@pytest.mark.sweep(3)
@valid_run
def test_a_slot_counts_if_the_whole_branch_before_it_was_accepted(name):
    """After an acceptance, the target holds each committed token once, but for the pending one."""
    trace = recorded(name)
    for frame in frames(name):
        if PHASES.index(frame.phase) < ACCEPT:
            continue
        for row, request in enumerate(frame.requests.tolist()):
            text = trace.prompt(request) + trace.output(request)
            state, index, token = (
                getattr(frame.target, column)[row] for column in ("state", "index", "token")
            )
            counts = (state >= PROMPT) & (state <= BONUS)
            held = sorted(index[counts].tolist())
            length = int(frame.lengths[row])
            assert held in (list(range(length - 1)), list(range(length))), (frame.round, row)
            assert [text[at] for at in index[counts]] == token[counts].tolist()
            slots = np.flatnonzero(counts)
            assert (np.diff(index[slots]) > 0).all(), "tokens lie in the order of the row"


@valid_run
def test_an_equal_token_on_another_branch_does_not_count(name):
    """What the acceptance keeps lies where the record's own path and moves put it."""
    trace = recorded(name)
    moves = trace.moves
    seen = 0
    for frame in frames(name):
        if frame.phase != "accept":
            continue
        for row in range(len(frame.requests)):
            entry = entry_of(trace, frame.round, row)
            kept = entry["path"][: min(entry["accepted"], entry["gained"])]
            at = (moves["round"] == frame.round) & (moves["phase"] == ACCEPT)
            at &= (moves["model"] == 0) & (moves["to_row"] == entry["row"])
            moved = {}
            for source, target, length in zip(
                *(moves[column][at].tolist() for column in ("from_slot", "to_slot", "length")),
                strict=True,
            ):
                moved |= {source + k: target + k for k in range(length)}
            due = [entry["pending"] + 1 + draft for draft in kept]
            due = [moved.get(slot, slot) for slot in due]
            state = frame.target.state[row]
            index = frame.target.index[row]
            new = (index >= entry["length"]) & (state == ACCEPTED)
            # The draft that ends a row has nothing behind it, so its K/V may stay where it is.
            if due and len(kept) == entry["gained"] and due[-1] != frame.pending[row]:
                due.pop()
            assert np.flatnonzero(new).tolist() == due, (frame.round, row)
            seen += len(due) > 0
    assert seen > (0 if name == "rollback" else 5)


@every_run
def test_drafts_are_drafted_until_they_are_judged_and_stale_behind_that(name):
    trace = recorded(name)
    feeds = trace.feeds
    for frame in frames(name):
        read = (feeds["round"] == frame.round) & (feeds["phase"] == VERIFY) & (feeds["node"] > 0)
        rows = trace.rows["row"][trace.rows["round"] == frame.round].tolist()
        slots = zip(feeds["row"][read].tolist(), feeds["slot"][read].tolist(), strict=True)
        states = [frame.target.state[rows.index(row), slot] for row, slot in slots]
        if frame.phase == "verify":
            assert set(states) == {DRAFTED}
        if frame.phase == "accept":
            assert STATES.index("drafted") not in states
            assert STALE in states


def test_a_row_ends_behind_its_accepted_branch():
    """In masking, accepted drafts stay in their columns, and the last token comes behind them."""
    trace = recorded("masking")
    found = trace.index.ends
    for number, slot in enumerate(found.tolist()):
        entry = {name: values[number].tolist() for name, values in trace.rows.items()}
        if not entry["gained"]:
            continue
        path = entry["path"][: min(entry["accepted"], entry["gained"])]
        last = entry["pending"] + 1 + path[-1] if path else entry["pending"]
        assert slot == last + (entry["gained"] > entry["accepted"])
    trace = recorded("inplace")
    goes_on = trace.rows["finished"] == 0
    behind = trace.rows["pending"] + trace.rows["gained"]
    assert (trace.index.ends == behind)[goes_on].all()


def test_depths_and_branches_of_a_tree():
    parents = np.array([[-1, 0, 0, 2, -1], [-1, 0, 1, 2, 3], [-1, -1, -1, -1, -1]], np.int32)
    assert depths(parents).tolist() == [[1, 2, 2, 3, 1], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1]]
    assert leaves(parents, np.array([5, 5, 3])).tolist() == [3, 1, 3]
    assert leaves(parents, np.array([2, 0, 1])).tolist() == [1, 0, 1]


@every_run
def test_rows_of_a_film_say_how_drafts_branch_and_what_became_of_them(name):
    trace, told = recorded(name), filmed(name)
    verdicts = set()
    for number, each in enumerate(told["rounds"]):
        for row, shown in enumerate(each["rows"]):
            entry = entry_of(trace, number, row)
            drafted, path = entry["drafted"], entry["path"][: entry["accepted"]]
            assert shown["parents"] == entry["parents"][:drafted]
            assert shown["path"] == path
            if leaves(np.array([entry["parents"]]), np.array([drafted]))[0] < 2:
                continue
            fates = [told["fates"][fate] for fate in shown["fates"]]
            assert len(fates) == drafted + 1
            own = fates.pop(entry["verified"])
            for draft, fate in enumerate(fates):
                verdicts.add(fate)
                wanted = expected_fate(entry, draft)
                assert fate in wanted, (number, row, draft, fate, wanted)
            is_own = entry["gained"] > entry["accepted"] and not entry["discarded"]
            assert (own == "bonus") == is_own
    assert {"accepted", "rejected", "unreached"} <= verdicts
    assert ("discarded" in verdicts) == (name == "rollback")
    assert ("unverified" in verdicts) == (name == "selected")


def expected_fate(entry: dict[str, Any], draft: int) -> set[str]:
    parents, path = entry["parents"], entry["path"][: entry["accepted"]]
    if draft >= entry["verified"]:
        return {"unverified"}
    if draft in path:
        return {"accepted"} if path.index(draft) < entry["gained"] else {"ended"}
    before = line(parents, draft)[:-1]
    if any(each not in path for each in before):
        return {"unreached", "discarded"} if entry["discarded"] else {"unreached"}
    if before != path:
        return {"rejected"}  # the target took another draft of this parent
    if entry["discarded"]:
        return {"kept", "unreached"}
    return {"rejected"} if entry["gained"] > entry["accepted"] else {"ended"}


@every_run
def test_the_lane_of_tokens_shows_each_draft_in_its_slot(name):
    trace, told = recorded(name), filmed(name)
    for number, each in enumerate(told["rounds"]):
        stage = each["stages"][DRAFT]
        for row, shown in enumerate(each["rows"]):
            if not shown["gained"]:
                continue
            cells = cells_of(told, stage["tokens"][row])
            entry = entry_of(trace, number, row)
            for draft, token in enumerate(shown["drafts"]):
                depth = len(line(entry["parents"], draft))
                cell = cells[entry["pending"] + 1 + draft]
                kind = "drafted" if draft < entry["verified"] else "unverified"
                assert cell == (kind, entry["length"] + depth - 1, token)


def cells_of(told: dict[str, Any], number: int) -> dict[int, tuple[str, int, int]]:
    """Return kind, index and token by slot, of slots with an index."""
    lane = runs_of(told, number)
    found = {}
    for first, stop, kind, index, _, request, tokens in lane:
        if request < 0:
            continue
        own = told["requests"][request]["tokens"][index : index + stop - first]
        for k in range(stop - first):
            found[first + k] = (KINDS[kind], index + k, (tokens or own)[k])
    return found


def runs_of(told: dict[str, Any], number: int) -> list[Any]:
    lane = told["lanes"][number]
    if lane and not isinstance(lane[0], list):
        base, count, *runs = lane
        return [*runs_of(told, base)[:count], *runs]
    return lane


@valid_run
def test_after_the_acceptance_the_lane_shows_one_branch_in_order(name):
    """Accepted drafts and the own token; what was rejected, or not reached, where it still lies."""
    trace, told = recorded(name), filmed(name)
    rejected = 0
    for number, each in enumerate(told["rounds"]):
        for row in range(len(each["rows"])):
            cells = cells_of(told, each["stages"][ACCEPT]["tokens"][row])
            entry = entry_of(trace, number, row)
            # The draft that ends a row has nothing behind it, so its K/V may stay where it is.
            kinds = ("accepted_now", "bonus_now", "pending")
            new = [(index, token) for kind, index, token in cells.values() if kind in kinds]
            wanted = enumerate(entry["emitted"][: entry["gained"]], entry["length"])
            assert new == list(wanted), (number, row)
            for slot, (kind, _, token) in cells.items():
                if kind != "rejected_now":
                    continue
                rejected += 1
                draft = slot - entry["pending"] - 1
                assert entry["drafts"][draft] == token
                assert "rejected" in expected_fate(entry, draft)
    assert rejected > 3


@every_run
def test_feeds_name_their_drafts(name):
    trace, told = recorded(name), filmed(name)
    feeds = trace.feeds
    found = []
    for number, each in enumerate(told["rounds"]):
        for phase, stage in enumerate(each["stages"]):
            for model, step, _, slot, count, *_, node in stage["feeds"]:
                for k in range(count):
                    found.append((number, phase, model, step, slot + k, node + k if node else 0))
    names = ("round", "phase", "model", "step", "slot", "node")
    wanted = zip(*(feeds[column].tolist() for column in names), strict=True)
    assert sorted(found) == sorted(wanted)


def test_a_film_without_trees_does_not_mention_them():
    rows = [row for each in film(TRACE)["rounds"] for row in each["rows"]]
    assert not any({"parents", "path", "end"} & row.keys() for row in rows)
    stages = [stage for each in film(TRACE)["rounds"] for stage in each["stages"]]
    assert {len(feed) for stage in stages for feed in stage["feeds"]} == {10}


def words_of(name: str, phase: int) -> list[str]:
    return [each["stages"][phase]["words"] for each in filmed(name)["rounds"]]


def test_sentences_speak_of_branches():
    drafted = " ".join(words_of("inplace", DRAFT))
    assert re.search(
        r"as trees of \d( to \d)? branches, up to \d drafts deep, in 4 forward", drafted
    )
    verified = words_of("inplace", VERIFY)
    assert any("A draft sees the drafts that it follows" in words for words in verified)
    for row in filmed("inplace")["rounds"][0]["stages"][DRAFT]["words_of"]:
        assert re.search(r"6 drafts on \d branches, q = ", row)


def test_the_sentence_of_compaction_names_drafts_and_slots():
    """The numbers are those of the record's moves, of the row that it speaks of."""
    trace, told = recorded("inplace"), 0
    moves = trace.moves
    pattern = re.compile(
        r"Drafts? ([\d, and]+) of row (\d+) moves? behind the [^:]*: "
        r"slots? ([\d, and]+) becomes? ([\d, and]+)\."
    )
    for number, words in enumerate(words_of("inplace", ACCEPT)):
        at = (moves["round"] == number) & (moves["phase"] == ACCEPT) & (moves["model"] == 0)
        said = pattern.search(words)
        assert (said is not None) == at.any(), words
        if said is None:
            continue
        told += 1
        drafts, row, sources, targets = (
            [int(n) for n in re.findall(r"\d+", part)] for part in said.groups()
        )
        entry = entry_of(trace, number, row[0])
        of_row = at & (moves["to_row"] == entry["row"])
        pairs = []
        for source, target, length in zip(
            *(moves[column][of_row].tolist() for column in ("from_slot", "to_slot", "length")),
            strict=True,
        ):
            pairs += [(source + k, target + k) for k in range(length)]
        assert list(zip(sources, targets, strict=True)) == pairs
        assert [entry["pending"] + draft for draft in drafts] == sources
    assert told > 2


def test_masking_says_that_nothing_moves_and_which_slots_become_holes():
    told = 0
    for number, words in enumerate(words_of("masking", ACCEPT)):
        said = re.search(
            r"Nothing moves[^:]*: drafts? .* of row (\d+) stays? in slots? ([\d, and]+); "
            r"slots? ([\d, andto]+) becomes? (?:a hole|holes)\.",
            words,
        )
        if said is None:
            continue
        told += 1
        entry = entry_of(recorded("masking"), number, int(said[1]))
        kept = [entry["pending"] + 1 + draft for draft in entry["path"] if draft >= 0]
        assert [int(n) for n in re.findall(r"\d+", said[2])] == kept
        holes = re.sub(
            r"(\d+) to (\d+)",
            lambda found: " ".join(map(str, range(int(found[1]), int(found[2]) + 1))),
            said[3],
        )
        between = set(range(entry["pending"] + 1, entry["pending_after"])) - set(kept)
        assert {int(n) for n in re.findall(r"\d+", holes)} == between
    assert told > 1


def test_a_missing_compaction_is_told_as_a_fact():
    words = " ".join(words_of("compaction", ACCEPT))
    assert re.search(r"Nothing moves, although drafts? .* of row \d lies? in slots? ", words)
    assert "behind the drafts before" not in words


def test_acceptance_of_trees_goes_by_depth():
    trace = recorded("static")
    table = metrics.acceptance(trace)
    rows = trace.rows
    working = rows["gained"] > 0
    deepest = 0
    drafted: dict[int, int] = {}
    reached: dict[int, int] = {}
    for number in np.flatnonzero(working).tolist():
        parents = rows["parents"][number].tolist()
        path = rows["path"][number, : rows["accepted"][number]].tolist()
        levels = set()
        for draft in range(rows["drafted"][number]):
            before = line(parents, draft)
            depth = len(before)
            deepest = max(deepest, depth)
            drafted[depth] = drafted.get(depth, 0) + 1
            if all(each in path for each in before[:-1]):
                levels.add(depth)
        for depth in levels:
            reached[depth] = reached.get(depth, 0) + 1
    assert table["position"].tolist() == list(range(1, deepest + 1))
    assert table["drafted_tokens"].tolist() == [drafted[depth] for depth in range(1, deepest + 1)]
    accepted = [int((rows["accepted"] >= depth).sum()) for depth in range(1, deepest + 1)]
    assert table["accepted_tokens"].tolist() == accepted
    shares = [n / reached[depth] for depth, n in enumerate(accepted, 1)]
    assert np.allclose(table["conditional_acceptance"], shares)
