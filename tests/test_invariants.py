"""Invariants as checks: a valid run violates none, and a fault is named before its consequences."""

import functools
import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import published
import pytest
import torch
from conftest import EOS, make_pair, make_prompts
from mutations import (
    ACCEPT,
    DRAFT,
    DRAFTER,
    SCHEDULE,
    SYNCHRONISE,
    TARGET,
    VERIFY,
    edited,
    queried,
    without,
)

import specviz as sv
from specviz.checks.rerun import tolerance
from specviz.checks.violations import RULES, Violations
from specviz.engine.draft_length import DraftLength
from specviz.engine.faults import FAULTS
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.moves import Move
from specviz.engine.state import State
from specviz.engine.strategies import Strategy
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

K = 4
Place = tuple[str, int, int, int]  # rule, round, phase, row


def decode(strategy: Strategy | str, model: str = "llama", **arguments: Any) -> Trace:
    usual = {
        "prompts": make_prompts(),
        "num_draft_tokens": K,
        "batch_size": 4,
        "max_new_tokens": 16,
    }
    given = usual | arguments
    pair = make_pair(model, given.pop("dtype", torch.float32))
    run = sv.generate(
        pair, given.pop("prompts"), strategy=strategy, record=True, progress=False, **given
    )
    assert run.trace is not None
    return run.trace


@functools.cache
def recorded(name: str, **options: Any) -> Trace:
    return decode(sv.strategy(name, **options))


def places(violations: Iterable[sv.Violation]) -> list[Place]:
    """Return rule, round, phase and row of each violation."""
    return [(each.rule, each.round, PHASES.index(each.phase), each.row) for each in violations]


def first_of(violations: Violations) -> Place:
    return places(violations)[0]


PLAIN = {"ones_mask": False, "draft_bonus": False}
VALID = [
    ("autoregressive", {}),
    ("rollback", {}),
    ("masking", {}),
    ("repadding", PLAIN),
    ("repadding", PLAIN | {"skip_unpadding": False}),
    ("eqspec", {}),
    ("exspec", {}),
    ("inplace", {}),
    ("exspec", {"window": 4}),
    ("exspec", {"fallback": "partial", "window": 6}),
    ("exspec", {"fallback": "wait", "max_wait": 2, "window": 8, "sort_prompts": True}),
]
BUDGETS = [1, 2, 3, 5, 24, 7, 24, 4, 6, 1]
SYNTHETIC = sv.drafter("synthetic", rates=[0.9, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
WORK = [  # what drafts, and how tokens are chosen
    ("model", None),
    ("lookup", "gumbel"),
    (SYNTHETIC, None),
    ("model", "rejection"),
    ("lookup", None),
    ("model", "gumbel"),
    (SYNTHETIC, "gumbel"),
]
# Every way meets both batch sizes, both Ks and, where it has a choice, both kinds of refill. The
# seven kinds of work take turns, so that each of them meets each of these, too.
CASES = []
for way, shape in product(VALID, [(1, 8, False), (4, 1, True), (4, 8, False)]):
    (name, options), (batch_size, k, refill) = way, shape
    own = {} if refill or name == "exspec" else {"refill": False}
    place = len(CASES)
    case = (name, options | own, batch_size, k, *WORK[place % len(WORK)])
    # The fast tests have two of the three shapes of each way.
    marks = [pytest.mark.slow] if place % 3 == place // 3 % 3 else []
    CASES.append(pytest.param(*case, marks=marks))


def case_id(value: object) -> str:
    return getattr(value, "name", str(value))


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    ("name", "options", "batch_size", "k", "drafter", "coupling"), CASES, ids=case_id
)
def test_small_budgets_all_drafters_and_samples_violate_nothing(
    name: str, options: dict[str, Any], batch_size: int, k: int, drafter: Any, coupling: str | None
) -> None:
    """One-token prompts, EOS within the drafts and a budget of one are among these."""
    sampling = coupling and sv.SamplingParams(0.8, top_k=20, coupling=coupling)
    trace = decode(
        sv.strategy(name, **options),
        batch_size=batch_size,
        num_draft_tokens=k,
        drafter=drafter,
        sampling=sampling,
        max_new_tokens=BUDGETS,
    )
    assert trace.meta["valid"]
    assert sv.check_invariants(trace, deep=True, pair=make_pair("llama")) == []
    if sampling is None:
        ends = [trace.output(request) for request in range(trace.num_requests)]
        assert any(
            text[-1] in EOS and len(text) < budget
            for text, budget in zip(ends, BUDGETS, strict=True)
        )


@dataclass(frozen=True)
class TwoFromTheLeft(Strategy):
    name: ClassVar[str] = "two_from_the_left"
    valid: ClassVar[bool] = True

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        state.layout.set_starts([2] * len(state.batch))


def test_a_custom_strategy_is_judged_by_its_record() -> None:
    assert sv.check_invariants(decode(TwoFromTheLeft())) == []
    faulty = TwoFromTheLeft(break_invariant="kv", rows=[1], from_round=2)
    (first, *_) = sv.check_invariants(decode(faulty))
    assert (first.rule, first.round, first.row) == ("kv", 2, 1)


def test_only_who_promises_to_end_rows_in_one_column_has_to() -> None:
    """LazyEqSpec of docs/extend.md does so in most rounds of this run, and promises nothing."""
    text = (Path(__file__).parents[1] / "docs/extend.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    example = next(block for block in blocks if "class LazyEqSpec" in block)
    names: dict[str, Any] = {"__name__": "extend"}
    exec(example.split("pair = ")[0], names)
    prompts = make_prompts()[3:5]
    lazy = decode(names["LazyEqSpec"](every=3), prompts=prompts, max_new_tokens=12)
    assert lazy.meta["right_aligned"] is False
    columns = [set(lazy.rows["pending"][lazy.rows["round"] == n]) for n in range(lazy.num_rounds)]
    assert 1 in map(len, columns)
    assert 2 in map(len, columns)
    assert sv.check_invariants(lazy) == []
    promising = replace(lazy, meta=lazy.meta | {"right_aligned": True})
    assert {violation.rule for violation in sv.check_invariants(promising)} == {"rectangle"}
    silent = replace(lazy, meta={k: v for k, v in lazy.meta.items() if k != "right_aligned"})
    assert sv.check_invariants(silent) == []


# Faults: the first violation is the fault, in the first round and phase that it hits.


def where_it_strikes(trace: Trace, kind: str, row: int, from_round: int) -> tuple[int, int]:
    """(round, phase) from which on the record has what the fault breaks."""
    rows, feeds = trace.rows, trace.feeds
    if kind in ("positions", "mask"):
        mine = (feeds["round"] >= from_round) & (feeds["row"] == row)
        stages = feeds["round"] * len(PHASES) + feeds["phase"]
        return divmod(int(stages[mine].min()), len(PHASES))
    hit = (rows["row"] == row) & (rows["round"] >= from_round)
    if kind == "kv":  # K/V of two tokens at least: that of a single one is written again
        hit &= (rows["finished"] == 0) & (rows["length"] + rows["gained"] >= 3)
        return int(rows["round"][hit][0]), SYNCHRONISE
    hit &= rows["accepted"] < np.minimum(K, rows["gained"])
    every, a = np.arange(len(hit)), np.minimum(rows["accepted"], K - 1)
    drafted, emitted = rows["drafts"][every, a], rows["emitted"][every, a]
    hit &= (emitted == drafted) & (drafted != rows["target_top_ids"][every, a, 0])
    return int(rows["round"][hit][0]), ACCEPT


def fault(name: str, kind: str) -> Trace:
    return recorded(name, break_invariant=kind, rows=(1,), from_round=2)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", ["eqspec", "exspec", "inplace", "masking", "rollback"])
def test_a_fault_is_named_first_in_its_row_and_round(name: str, kind: str) -> None:
    trace = fault(name, kind)
    found = sv.check_invariants(trace)
    assert not trace.meta["valid"]
    assert first_of(found) == (kind, *where_it_strikes(trace, kind, 1, 2), 1)
    table = found.frame()
    hit = (trace.rows["row"] == 1) & (trace.rows["round"] >= 2)
    assert set(table["request"][table["rule"] == kind]) <= set(trace.rows["request"][hit].tolist())
    assert table["round"].min() >= 2
    assert set(table["rule"]) <= {kind, "kv"}  # wrong K/V is what the others leave behind
    if kind != "kv":
        assert set(table["row"][table["rule"] == kind]) == {1}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_in_all_rows_from_the_start_is_named_in_all(kind: str) -> None:
    trace = recorded("eqspec", break_invariant=kind)
    found = sv.check_invariants(trace)
    firsts = found.first_per_request()
    assert found[0] in firsts
    assert {violation.rule for violation in firsts} == {kind}
    assert len(firsts) >= trace.num_requests - 2  # a row may end before it meets a rejection


@pytest.mark.parametrize("name", ["eqspec", "rollback", "inplace"])
def test_a_wrong_bonus_shows_in_sampled_runs_too(name: str) -> None:
    chosen = published.strategy(name, break_invariant="bonus", rows=[1], from_round=2)
    found = sv.check_invariants(decode(chosen, sampling=sv.SamplingParams(0.8)))
    assert {(violation.rule, violation.row) for violation in found} == {("bonus", 1)}


# The methods that fail, each for the reason that the paper names.


def test_positions_from_columns_go_wrong_in_the_round_after_a_rejection() -> None:
    trace = recorded("masking", positions="column")
    found, rows = sv.check_invariants(trace), trace.rows
    number = found[0].round
    earlier = rows["round"] < number - 1
    assert (rows["gained"][earlier] == K + 1).all()  # nothing was rejected before
    rejected = (rows["gained"] < K + 1) & (rows["finished"] == 0) & (rows["round"] == number - 1)
    named = [place for place in places(found) if place[:3] == ("positions", number, DRAFT)]
    assert named[0] == first_of(found)
    assert {row for *_, row in named} == set(rows["row"][rejected].tolist())


def test_a_mask_of_ones_goes_wrong_in_the_first_padded_prefill() -> None:
    trace = recorded("repadding")
    found, rows, feeds = sv.check_invariants(trace), trace.rows, trace.feeds
    padded = rows["row"][(rows["round"] == 0) & (rows["start"] > 0)]
    fed = feeds["row"][(feeds["round"] == 0) & (feeds["phase"] == SCHEDULE)]
    in_prefill = [each for each in found if (each.round, each.phase) == (0, "schedule")]
    assert found[0] == in_prefill[0]
    assert {(each.rule, each.row) for each in in_prefill} == set(
        product(("positions", "mask"), np.intersect1d(padded, fed).tolist())
    )
    assert "padding" in next(each.found for each in in_prefill if each.rule == "mask")


def test_a_bonus_from_the_draft_goes_wrong_at_the_first_rejection() -> None:
    trace = recorded("repadding", ones_mask=False, skip_unpadding=False)
    found, rows = sv.check_invariants(trace), trace.rows
    last = np.arange(len(rows["gained"])), rows["gained"] - 1
    wrong = (rows["gained"] > 0) & (rows["emitted"][last] != rows["target_top_ids"][:, :, 0][last])
    expected = zip(rows["round"][wrong].tolist(), rows["row"][wrong].tolist(), strict=True)
    assert places(found) == [("bonus", number, ACCEPT, row) for number, row in expected]


# Damaged records, for what no fault does.


def middle(trace: Trace, table: str, query: str) -> tuple[int, int, int]:
    """Return the middle entry of a table that a query names, its round and its row."""
    entries = np.flatnonzero(queried(table, query, trace))
    entry = int(entries[len(entries) // 2])
    return entry, *(int(getattr(trace, table)[name][entry]) for name in ("round", "row"))


def another_token(j: int) -> Any:
    """Return a change of the j-th token (or the candidates there)."""

    def change(tokens: np.ndarray) -> np.ndarray:
        changed = tokens.copy()
        changed[j] += 1
        return changed

    return change


# strategy, which entries of `rows` may be damaged, column, its change; what is found: the rule,
# rounds after the entry's, phase, and whether that is the first violation
DAMAGE = [
    ("eqspec", "gained > 1 and finished == 0", "gained", -1, "lengths", 1, SCHEDULE, False),
    ("eqspec", "gained > 1", "emitted", another_token(0), "lengths", 0, ACCEPT, True),
    ("eqspec", "row < 2", "pending", +1, "rectangle", 0, SCHEDULE, True),
    ("inplace", "gained > 0", "pending", +1, "rectangle", 0, VERIFY, False),
    ("masking", "gained > 0", "pending", +1, "rectangle", 0, SCHEDULE, True),
    ("inplace", "finished == 0", "start_after", lambda _: 3, "rectangle", 0, SYNCHRONISE, False),
    ("eqspec", "gained == 3", "target_top_ids", another_token(1), "acceptance", 0, ACCEPT, True),
    ("eqspec", "gained == accepted + 1 > 2", "accepted", -1, "acceptance", 0, ACCEPT, True),
    # A draft that is emitted as another token was fed as another one before.
    ("eqspec", "accepted > 0", "drafts", another_token(0), "acceptance", 0, ACCEPT, False),
    ("eqspec", "accepted > 0", "drafts", another_token(0), "kv", 0, DRAFT, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "query", "column", "change", "rule", "later", "phase", "is_first"),
    DAMAGE,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_row_is_named(
    name: str, query: str, column: str, change: Any, rule: str, later: int, phase: int,
    is_first: bool,
) -> None:  # fmt: skip
    trace = recorded(name)
    entry, number, row = middle(trace, "rows", query)
    old = trace.rows[column][entry]
    value = change(old) if callable(change) else old + change
    found = sv.check_invariants(edited(trace, "rows", entry, **{column: value}))
    place = (rule, number + later, phase, row)
    assert next(each for each in places(found) if each[0] == rule) == place
    assert not is_first or first_of(found) == place


def test_a_token_is_named_by_its_text_where_the_record_has_it() -> None:
    trace = recorded("eqspec")
    entry, *_ = middle(trace, "rows", "gained > 1")
    emitted = another_token(0)(trace.rows["emitted"][entry])
    texts = {str(emitted[0]): "no"}
    damaged = edited(trace, "rows", entry, emitted=emitted)
    (first, *_) = sv.check_invariants(replace(damaged, meta=trace.meta | {"token_texts": texts}))
    assert f"token {emitted[0]} ('no')" in first.found


def test_an_output_that_was_not_emitted_breaks_the_lengths() -> None:
    trace = recorded("inplace")
    requests = dict(trace.requests)
    requests["output_tokens"] = np.append(requests["output_tokens"], np.int32(1))
    requests["output_offsets"] = requests["output_offsets"] + np.array([0] * 10 + [1])
    requests["budget"] = requests["budget"] + 1
    found = sv.check_invariants(replace(trace, requests=requests))
    entry = np.flatnonzero((trace.rows["request"] == 9) & (trace.rows["gained"] > 0))[-1]
    assert ("lengths", trace.rows["round"][entry]) in [
        (violation.rule, violation.round) for violation in found if violation.request == 9
    ]


def test_an_output_beyond_its_budget() -> None:
    trace = recorded("inplace")
    request = next(request for request in range(10) if len(trace.output(request)) == 16)
    found = sv.check_invariants(edited(trace, "requests", request, budget=15))
    entry = np.flatnonzero(trace.rows["request"] == request)[-1]
    assert {violation.rule for violation in found} == {"budget"}
    # A round before may have ended on the smaller budget without finishing the row.
    last = found[-1]
    assert places([last]) == [
        ("budget", trace.rows["round"][entry], ACCEPT, trace.rows["row"][entry])
    ]
    assert (last.request, last.count, last.slot) == (request, 1, None)


def test_tokens_behind_the_first_eos() -> None:
    trace = recorded("inplace")
    request = max(range(10), key=lambda request: len(trace.output(request)))
    output, length = trace.output(request), len(trace.prompt(request))
    others = {token for other in range(10) if other != request for token in trace.output(other)}
    eos = next(token for token in output[2:-4] if token not in others)
    found = sv.check_invariants(replace(trace, meta=trace.meta | {"eos_token_ids": [*EOS, eos]}))
    at = length + output.index(eos) + 1  # tokens up to the EOS, itself included
    ends = trace.rows["length"] + trace.rows["gained"]
    entry = np.flatnonzero((trace.rows["request"] == request) & (ends >= at))[0]
    assert {violation.rule for violation in found} == {"eos"}
    assert first_of(found) == ("eos", trace.rows["round"][entry], ACCEPT, trace.rows["row"][entry])
    behind = [violation.count for violation in found if "follow" in violation.expected]
    assert sum(behind) == len(output) - output.index(eos) - 1


@pytest.mark.parametrize(("finished", "rules"), [(1, {"budget"}), (0, {"budget", "eos"})])
def test_a_row_finishes_when_it_ends_and_not_before(finished: int, rules: set[str]) -> None:
    trace = recorded("inplace")
    names = set()
    for entry in np.flatnonzero(trace.rows["finished"] != finished)[:10]:
        (found,) = sv.check_invariants(edited(trace, "rows", entry, finished=finished))
        assert (found.round, found.row) == (trace.rows["round"][entry], trace.rows["row"][entry])
        names.add(found.rule)
    assert names == rules


def test_a_draft_cache_that_was_not_moved_with_the_targets() -> None:
    trace = recorded("eqspec")
    moves = trace.moves
    long = (moves["phase"] == SYNCHRONISE) & (moves["model"] == DRAFTER) & (moves["length"] > 6)
    entry = np.flatnonzero(long)[3]
    number, row = moves["round"][entry], moves["from_row"][entry]
    found = sv.check_invariants(without(trace, "moves", entry))
    assert first_of(found) == ("caches", number, SYNCHRONISE, row)
    assert (found[0].model, found[0].slot) == ("draft", moves["to_slot"][entry])
    same = [moves[name] == moves[name][entry] for name in moves if name not in ("model", "step")]
    both = sv.check_invariants(without(trace, "moves", np.flatnonzero(np.all(same, axis=0))))
    assert [(v.rule, v.model) for v in both[:2]] == [("kv", "target"), ("kv", "draft")]
    assert first_of(both) == ("kv", number, SYNCHRONISE, row)


def test_a_draft_that_forgets_its_last_token_after_a_full_acceptance() -> None:
    """The draft is fed its last draft again after a full acceptance."""
    trace = recorded("inplace")
    rows, feeds = trace.rows, trace.feeds
    full = f"accepted == {K} and finished == 0 and gained == {K + 1}"
    entry, number, row = middle(trace, "rows", full)
    again = (feeds["round"] == number + 1) & (feeds["row"] == row) & (feeds["model"] == DRAFTER)
    (fed,) = np.flatnonzero(again & (feeds["index"] == rows["length"][entry] + K - 1))
    found = sv.check_invariants(without(trace, "feeds", fed))
    assert first_of(found) == ("caches", number + 1, DRAFT, row)
    assert "not been fed" in found[0].found
    assert found[0].model == "draft"


def test_a_hole_that_is_seen() -> None:
    trace = recorded("masking")
    hole = int(trace.holes["feed"].size // 2)
    feed, slot = int(trace.holes["feed"][hole]), int(trace.holes["start"][hole])
    found = sv.check_invariants(without(trace, "holes", hole))
    at = [trace.feeds[name][feed] for name in ("round", "phase", "row")]
    assert first_of(found) == ("mask", *at)
    assert found[0].slot == slot
    assert f"it also sees slot {slot}, which holds index" in found[0].found
    assert "of a rejected draft" in found[0].found


@pytest.mark.parametrize(("model", "phase"), [(TARGET, VERIFY), (DRAFTER, DRAFT)])
@pytest.mark.parametrize(
    ("rule", "column", "shift"),
    [
        ("positions", "position", 1),
        ("kv", "token", 1),
        ("mask", "visible_start", 1),
        ("mask", "visible_stop", -1),
    ],
)
def test_feeds_that_were_altered(
    model: int, phase: int, rule: str, column: str, shift: int
) -> None:
    trace = recorded("masking")
    where = f"model == {model} and phase == {phase} and index > 5"
    entry, number, row = middle(trace, "feeds", where)
    if column == "visible_stop":
        trace = without(trace, "holes", np.flatnonzero(trace.holes["feed"] == entry))
    value = trace.feeds[column][entry] + shift
    found = sv.check_invariants(edited(trace, "feeds", entry, **{column: value}))
    assert first_of(found) == (rule, number, phase, row)
    assert found[0].model == MODELS[model]


def test_a_slot_that_is_not_seen() -> None:
    trace = recorded("inplace")
    entry, *_ = middle(trace, "feeds", f"model == {TARGET} and phase == {VERIFY} and index > 5")
    (first, *_) = sv.check_invariants(edited(trace, "feeds", entry, visible_start=2))
    assert first.found == "it does not see slot 0, which holds index 0"
    assert (first.slot, first.count) == (0, 2)


def test_any_order_of_slots_will_do_if_each_query_sees_its_tokens() -> None:
    """Index 0 and 1 of a prompt trade places, a layout that no strategy here has.

    Queries see the same tokens, so nothing is wrong.
    """
    trace = recorded("inplace")
    feeds = trace.feeds
    # Of a shorter prompt the draft is fed index 1 again.
    long = [number for number in range(10) if len(trace.prompt(number)) > 3]
    mine = (feeds["phase"] == SCHEDULE) & np.isin(feeds["request"], long)
    swapped = edited(trace, "feeds", mine & (feeds["index"] == 1), slot=0)
    first = mine & (feeds["index"] == 0)
    swapped = edited(swapped, "feeds", first, slot=1, visible_start=1, visible_stop=2)
    assert not np.array_equal(swapped.feeds["slot"], feeds["slot"])
    assert sv.check_invariants(swapped) == []


# What is returned.


def test_one_violation_for_each_phase_row_model_and_rule() -> None:
    found = sv.check_invariants(recorded("repadding"))
    table = found.frame()
    keys = ["round", "phase", "model", "row", "request", "rule"]
    assert list(table) == [*keys, "slot", "count", "expected", "found", "head"]
    assert not table.duplicated(keys).any()
    assert set(table["rule"]) <= set(RULES)
    order = [(violation.round, PHASES.index(violation.phase)) for violation in found]
    assert order == sorted(order)
    assert (table["count"] >= 1).all()
    firsts = table.drop_duplicates("request")["request"].tolist()
    assert [violation.request for violation in found.first_per_request()] == firsts


def test_a_violation_reads_as_one_line() -> None:
    found = sv.check_invariants(fault("eqspec", "kv"))
    first = found[0]
    assert str(first) == first.message == (
        f"round 2, synchronise phase, target model, row 1 (request {first.request}): kv: "
        f"slot {first.slot} should hold the K/V of index 1; it holds index 0 ({first.count} slots)"
    )  # fmt: skip
    assert str(found).splitlines() == [violation.message for violation in found]
    assert repr(found) == f"<{len(found)} violations, the first: {first}>"
    nothing = Violations()
    assert (str(nothing), repr(nothing), len(nothing.frame())) == ("all invariants hold", "[]", 0)
    assert list(nothing.frame()) == list(found.frame())
    assert isinstance(first, sv.Violation)


def test_checking_a_saved_record_brings_no_torch(tmp_path: Path) -> None:
    recorded("eqspec", break_invariant="mask").save(tmp_path / "run")
    code = (
        "import sys, specviz as sv; "
        "found = sv.check_invariants(sv.Trace.load(sys.argv[1])); "
        "print(len(found) > 0, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False"]


# Deep: the forwards once more.


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("model", "dtype"),
    [("gpt2", torch.float32), ("qwen3", torch.float64), ("glm4", torch.bfloat16)],
)
def test_deep_allows_for_rounding_and_no_more(model: str, dtype: torch.dtype) -> None:
    for kind in (None, "positions"):
        strategy = sv.strategy("eqspec", break_invariant=kind)
        trace = decode(strategy, model, dtype=dtype, prompts=make_prompts()[:6], max_new_tokens=6)
        found = sv.check_invariants(trace, deep=True, pair=make_pair(model, dtype))
        assert any("fresh prefill" in each.found for each in found) == (kind is not None)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", ["eqspec", "exspec", "masking"])
def test_deep_finds_slipped_kv_where_the_record_finds_it(name: str) -> None:
    trace = fault(name, "kv")
    shallow = sv.check_invariants(trace)
    deep = sv.check_invariants(trace, deep=True, pair=make_pair("llama"))
    assert first_of(deep) == first_of(shallow)
    assert "fresh prefill" in deep[0].found
    assert (deep[0].slot, deep[0].count) == (shallow[0].slot, shallow[0].count)


class EverySecond(DraftLength):
    """Nothing is drafted in every second round."""

    name = "every second"

    def choose(self, state: State) -> int:
        return self.most * (state.round % 2 == 0)


def test_deep_asks_no_move_to_take_the_pending_tokens_kv_along() -> None:
    """Rollback may cut a row at a draft, which is pending then. The draft model reads it again."""
    run = {"num_draft_tokens": EverySecond(3), "batch_size": 3, "max_new_tokens": 6}
    trace = decode("rollback", prompts=make_prompts()[:5], **run)
    assert sv.check_invariants(trace, deep=True, pair=make_pair("llama")) == []


def test_deep_finds_what_no_record_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A faulty cache: the last slot of each moved block stays where it was."""
    trace, move = recorded("eqspec"), CachedModel.move

    def move_less(self: CachedModel, moves: list[Move]) -> None:
        move(self, [Move(*block[:4], block[4] - 1) for block in moves])

    monkeypatch.setattr(CachedModel, "move", move_less)
    found = sv.check_invariants(trace, deep=True, pair=make_pair("llama"))
    assert {(violation.rule, violation.phase) for violation in found} == {("kv", "synchronise")}
    moves = trace.moves
    first = np.flatnonzero((moves["phase"] == SYNCHRONISE) & (moves["model"] == TARGET))[0]
    last = moves["to_slot"][first] + moves["length"][first] - 1
    assert (found[0].round, found[0].slot) == (moves["round"][first], last)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trace": None}, "trace=None: the run was not recorded"),
        ({"trace": "run"}, "trace must be a Trace, got str"),
        ({"deep": True}, "deep=True runs the models again, so it needs a pair"),
        ({"deep": True, "pair": "pair"}, "pair must be a Pair, got str"),
        ({"pair": make_pair("llama")}, "pass deep=True too"),
        ({"deep": True, "pair": make_pair("gpt2")}, "pair has target GPT2"),
        (
            {"deep": True, "pair": make_pair("llama", torch.float64)},
            "pair has dtype float64, but the record was made with float32",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_refused(arguments: dict[str, Any], message: str) -> None:
    given = {"trace": recorded("eqspec")} | arguments
    with pytest.raises(ValueError, match=message):
        sv.check_invariants(given.pop("trace"), **given)


@pytest.mark.parametrize(
    ("dtype", "most"),
    [
        (torch.float64, 2e-8),
        (torch.float32, 4e-4),
        (torch.float16, 0.04),
        (torch.bfloat16, 0.09),
    ],
)
def test_the_tolerance_lies_between_rounding_and_another_token(
    dtype: torch.dtype, most: float
) -> None:
    assert 3 * torch.finfo(dtype).eps < tolerance(dtype) < most
