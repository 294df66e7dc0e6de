"""Two lanes: the text is that of one, each lane's record is in step, and rows change lanes."""

import _thread
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch
from conftest import check_refusal, generate, make_pair, make_prompts
from test_interrupt import Interrupting
from test_numbers import SAMPLINGS, poisoned_pair
from tiny_heads import pair_with
from transformers import LlamaModel

import specviz as sv
from specviz import metrics
from specviz.engine.draft_length import DraftLength
from specviz.engine.kv.compiled import CompiledModel
from specviz.engine.lanes import workers
from specviz.engine.lanes.lane import Lane, make_lanes
from specviz.engine.options import Options
from specviz.engine.recorder import Recorder
from specviz.engine.run import make_run
from specviz.engine.strategies import STRATEGIES
from specviz.generation import lanes as laned
from specviz.generation.lanes import collect_lanes, make_lanes_result
from specviz.record.builder import Builder
from specviz.record.replay import Replay
from specviz.record.schema import PHASES
from specviz.simulation import Policy

RUN = {"max_new_tokens": 20, "batch_size": 6, "num_draft_tokens": 4}
VALID = [name for name, kind in STRATEGIES.items() if kind().promises]
# With rejection, how these two shorten a round depends on the other rows.
ALONE = [name for name in VALID if name != "rollback"]
BUDGETS = [3, 20, 5, 18, 20, 1, 20, 9, 20, 20]
# With all rows at a time, lane 0 gets every other prompt, and runs empty first.
UNEVEN = {"max_new_tokens": [1, 20] * 5, "batch_size": 10}


class AtRandom:
    """A turn for any lane that can go on."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def __call__(self, ready: Sequence[Lane]) -> Lane:
        return self._draw.choice(list(ready))


def in_turns(
    seed: int, pair: sv.Pair | None = None, *, record: bool = True, **options: object
) -> sv.Result:
    """A run in two lanes, interleaved at random, without threads."""
    pair = pair or make_pair("llama")
    run = make_run(pair, make_prompts(), Options(**(RUN | options), lanes=2, num_threads=1))
    found = collect_lanes(run, record=record, partial=False, progress=False, turn=AtRandom(seed))
    return make_lanes_result(run, found)


@cache
def in_one(name: str, kind: str) -> sv.Result:
    options = RUN | {"max_new_tokens": BUDGETS, "sampling": SAMPLINGS[kind]}
    return generate(make_pair("llama"), make_prompts(), strategy=name, **options)


def check_lanes(result: sv.Result):
    """Both records hold all invariants, replay, and add up to the result."""
    for lane in result.lanes:
        assert list(sv.check_invariants(lane.trace)) == []
        assert len(list(Replay(lane.trace).frames())) == 5 * lane.trace.num_rounds
        assert len(lane.spans_ms) == lane.trace.num_rounds
        assert not metrics.waste(lane.trace)["target_read"].iloc[0] < 1
    written = [sum(map(len, lane.tokens)) for lane in result.lanes]
    assert sum(written) == sum(map(len, result.tokens))
    assert len(result.rounds["batch"]) == sum(lane.trace.num_rounds for lane in result.lanes)
    counts = np.bincount(result.rows["round"], minlength=len(result.rounds["batch"]))
    assert counts.tolist() == result.rounds["batch"].tolist()
    seen = Counter()
    for number, lane in enumerate(result.lanes):
        seen.update(dict.fromkeys(set(lane.rows["request"].tolist()), 1))
        assert lane.meta["lane"] == number
    moved = {handover["request"] for handover in result.meta["handovers"]}
    assert {request for request, count in seen.items() if count == 2} <= moved


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(14, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("name", ALONE)
def test_any_interleaving_writes_the_text_of_one_lane(name, kind, count):
    """Over 200 interleavings in all, of which one of each kind is recorded and checked."""
    whole = in_one(name, kind)
    handovers = seed = 0
    # In a hurry the first two, and then as many as it takes until a request has changed its lane.
    while seed < count or (seed < 14 and not handovers and name != "exspec"):
        options = {"strategy": name, "sampling": SAMPLINGS[kind], "max_new_tokens": BUDGETS}
        result = in_turns(seed, record=seed == 0, **options)
        assert result.tokens == whole.tokens
        assert result.status == whole.status
        if seed == 0:
            check_lanes(result)
        handovers += len(result.meta["handovers"])
        seed += 1
    # A pool begins with all prompts, so its lanes end at nearly the same time.
    assert handovers > 0 or name == "exspec"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["greedy", "gumbel"])
def test_rollback_cuts_each_lane_to_its_own_minimum(kind):
    whole = in_one("rollback", kind)
    for seed in range(3):
        options = {"sampling": SAMPLINGS[kind], "max_new_tokens": BUDGETS}
        result = in_turns(seed, strategy="rollback", **options)
        assert result.tokens == whole.tokens
        check_lanes(result)


VARIANTS: dict[str, dict[str, object]] = {
    "lookup": {"drafter": "lookup"},
    "tree": {"drafter": sv.drafter("tree", depth=3, width=2, children=2)},
    "tree in masking": {
        "drafter": sv.drafter("tree", depth=3, width=2, children=2),
        "strategy": "masking",
    },
    "tetris": {"selector": sv.selector("tetris", extra=2, max_wait=2)},
    "no draft K/V": {"levers": sv.Levers(keep_draft=False)},
    "static": {"strategy": sv.strategy("eqspec", refill=False)},
    "published": {"strategy": sv.strategy("exspec", window=8, drop_cache=True)},
    "sorted": {"strategy": sv.strategy("exspec", window=8, sort_prompts=True, fallback="wait")},
    "auto": {"num_draft_tokens": "auto"},
    "two rows": {"batch_size": 2},
    "deterministic": {"deterministic": True},
    "levers": {"levers": sv.Levers(prefill_tokens=9)},
}


@pytest.mark.sweep(16)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_option_keeps_its_text(variant):
    """Two interleavings of each; recorded, with rows that change lanes."""
    options = RUN | {"max_new_tokens": BUDGETS} | VARIANTS[variant]
    whole = generate(make_pair("llama"), make_prompts(), **options)
    for seed in range(2):
        result = in_turns(seed, **options)
        assert result.tokens == whole.tokens
        check_lanes(result)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_rows_take_the_features_of_a_head_along(kind):
    """Without them a head would draft from zeros: fewer accepted drafts, same text."""
    pair = pair_with("llama", kind)
    options = {"drafter": kind, "num_draft_tokens": 3} | UNEVEN
    whole = generate(pair, make_prompts(), **(RUN | options))
    moved = 0
    for seed in range(1, 4):
        result = in_turns(seed, pair, **options)
        assert result.tokens == whole.tokens
        check_lanes(result)
        moved += len(result.meta["handovers"])
        assert result.rows["accepted"].sum() == whole.rows["accepted"].sum()
    assert moved > 0


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", VALID)
def test_threads_write_the_text_of_one_lane(name, monkeypatch):
    monkeypatch.setattr(workers, "_cores", lambda: 2)
    whole = in_one(name, "gumbel")
    options = RUN | {"strategy": name, "sampling": SAMPLINGS["gumbel"], "max_new_tokens": BUDGETS}
    before = torch.get_num_threads()
    result = generate(make_pair("llama"), make_prompts(), lanes=2, record=True, **options)
    assert result.tokens == whole.tokens
    check_lanes(result)
    assert torch.get_num_threads() == before
    assert [thread for thread in threading.enumerate() if "specviz" in thread.name] == []


def test_one_lane_at_most_drafts_and_one_at_most_verifies(monkeypatch):
    """On the clock of both lanes: of each side of a round, no two overlap."""
    monkeypatch.setattr(workers, "_cores", lambda: 2)
    result = generate(make_pair("llama"), make_prompts(), lanes=2, **RUN)
    table = result.timeline
    assert (table["start_ms"] <= table["stop_ms"]).all()
    for side in (("schedule", "draft"), ("verify", "accept", "synchronise")):
        part = table[table["phase"].isin(side)].sort_values("start_ms")
        assert (part["start_ms"].to_numpy()[1:] >= part["stop_ms"].to_numpy()[:-1] - 1e-6).all()
    both = [table[table["lane"] == lane] for lane in (0, 1)]
    assert all(len(part) > 0 for part in both)
    ends = [part["stop_ms"].max() for part in both]
    assert max(part["start_ms"].min() for part in both) < min(ends), "they run at the same time"
    assert result.summary["total_s"].iloc[0] == pytest.approx(result.elapsed_ms / 1e3)
    assert result.elapsed_ms == pytest.approx(max(ends) - table["start_ms"].min())


def check_reading(monkeypatch):
    """Both lanes never take the target at once, and write the text of one lane.

    Each phase that takes it lasts a while, so that two of them would meet.
    """
    monkeypatch.setattr(workers, "_cores", lambda: 2)
    phases = Counter()
    takes_target = threading.Lock()
    advance = workers.Workers._advance

    def watched(self, lane):
        phase = PHASES[phases[lane.number] % len(PHASES)]
        phases[lane.number] += 1
        if phase == "draft" or (phase == "schedule" and not lane.state.waiting):
            return advance(self, lane)
        assert takes_target.acquire(blocking=False), f"both lanes take the target in {phase}"
        try:
            time.sleep(0.005)
            return advance(self, lane)
        finally:
            takes_target.release()

    monkeypatch.setattr(workers.Workers, "_advance", watched)
    result = generate(make_pair("llama"), make_prompts(), lanes=2, **RUN)
    assert result.tokens == generate(make_pair("llama"), make_prompts(), **RUN).tokens


def test_prompts_are_read_while_the_other_lane_does_not_verify(monkeypatch):
    check_reading(monkeypatch)


def check_thread_shares(monkeypatch):
    """Of four threads each lane computes with two, or with as many as the caller says."""
    monkeypatch.setattr(workers, "_cores", lambda: 2)
    seen = []
    advance = Lane.advance

    def watched(self):
        event = advance(self)
        seen.append(torch.get_num_threads())
        return event

    monkeypatch.setattr(Lane, "advance", watched)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        result = sv.generate(make_pair("llama"), make_prompts(), lanes=2, progress=False, **RUN)
        shares = [lane.meta["num_threads"] for lane in result.lanes]
        assert shares == [2, 2], "each lane has its share"
        own = sv.generate(
            make_pair("llama"), make_prompts(), lanes=2, num_threads=3, progress=False, **RUN
        )
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
    assert [lane.meta["num_threads"] for lane in own.lanes] == [3, 3]
    assert set(seen) == {2, 3}


@pytest.mark.slow
def test_each_lane_computes_with_its_share_of_the_threads(monkeypatch):
    """With all of them in each, the lanes would wait for one another's operations."""
    check_thread_shares(monkeypatch)


def check_disjoint(lanes):
    """The lanes share nothing that a round changes."""
    first, second = (lane.state for lane in lanes)
    for name in ("chooser", "batch", "waiting", "layout", "arriving"):
        assert getattr(first, name) is not getattr(second, name), name
    for model in ("target", "draft"):
        assert first.caches[model] is not second.caches[model], model
    assert lanes[0].run.draft_length is not lanes[1].run.draft_length
    assert lanes[0].run.meter is not lanes[1].run.meter


@pytest.mark.parametrize("kind", SAMPLINGS)
def test_lanes_share_only_what_no_round_changes(kind):
    """A chooser keeps what it drew for the rows of its last round, so each lane has its own."""
    options = Options(**RUN, lanes=2, num_threads=1, sampling=SAMPLINGS[kind])
    check_disjoint(make_lanes(make_run(make_pair("llama"), make_prompts(), options)))


def test_without_two_cores_lanes_take_turns(monkeypatch):
    monkeypatch.setattr(workers, "_cores", lambda: 1)
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))
    result = generate(make_pair("llama"), make_prompts(), lanes=2, record=True, **RUN)
    assert result.tokens == generate(make_pair("llama"), make_prompts(), **RUN).tokens
    check_lanes(result)
    assert [thread for thread in started if "specviz" in thread.name] == []
    assert Policy.of(result.meta).overlap
    assert not Policy.of(result.lanes[0].meta).overlap
    table = result.timeline
    assert (table["start_ms"].to_numpy()[1:] >= table["stop_ms"].to_numpy()[:-1] - 1e-6).all()


def test_prompts_go_to_the_lane_with_fewer_rows():
    """Ten prompts, three rows a lane: both lanes begin full, none is more than one row ahead."""
    result = in_turns(0, max_new_tokens=8)
    first = [lane.rounds["batch"][0] for lane in result.lanes]
    assert first == [3, 3]
    few = in_turns(1, max_new_tokens=8, batch_size=8)
    shares = [len(set(lane.rows["request"].tolist())) for lane in few.lanes]
    assert sum(shares) >= 10
    assert min(shares) >= 3


def test_a_lane_that_runs_empty_gets_half_of_the_others_rows():
    """One lane's requests end at once, and no row changes lanes twice."""
    result = in_turns(1, **UNEVEN)
    handovers = result.meta["handovers"]
    assert [each["tokens"] > 0 for each in handovers] == [True] * len(handovers)
    requests = [each["request"] for each in handovers]
    assert 0 < len(requests) == len(set(requests))
    for each in handovers:
        source, target = (result.lanes[each[name]] for name in ("source", "target"))
        request = each["request"]
        assert source.tokens[request] == result.tokens[request][: each["tokens"]]
        assert target.tokens[request] == result.tokens[request][each["tokens"] :]
        assert target.prompts[request] == [*result.prompts[request], *source.tokens[request]]
        assert source.status[request] == "elsewhere"
        assert target.status[request] == result.status[request]
        # What the record shows as read in the other lane was not computed.
        feeds = target.trace.feeds
        arrived = (feeds["request"] == request) & (feeds["phase"] == PHASES.index("schedule"))
        length = len(target.prompts[request]) - 1
        assert (arrived & (feeds["model"] == 0)).sum() == length


def test_a_move_into_a_place_that_a_prompt_then_takes_is_no_finding(monkeypatch):
    """A row that has ended may be moved, as a handover packs a lane, before its place is filled."""
    monkeypatch.setattr(workers, "_cores", lambda: 1)
    counts = {10: 1, 11: 12, 12: 12, 13: 12, 14: 2, 15: 12}
    result = generate(
        make_pair("llama"),
        [[token] * count for token, count in counts.items()],
        strategy="autoregressive",
        lanes=2,
        batch_size=4,
        max_new_tokens=[1, 8, 2, 1, 1, 8],
        record=True,
    )
    moves = result.lanes[1].trace.moves
    assert moves["length"].max() == 12
    check_lanes(result)


def test_rows_that_change_lanes_are_not_prefilled(monkeypatch):
    """The other lane reads each prompt once; the K/V of rows that move is copied."""
    counted = []
    plain = LlamaModel.forward

    def forward(self, input_ids, **more):
        counted.append(input_ids.numel())
        return plain(self, input_ids, **more)

    prompts = make_prompts()[:6]
    options = RUN | {"max_new_tokens": [1, 24, 1, 24, 1, 24], "strategy": "autoregressive"}
    with monkeypatch.context() as patch:
        patch.setattr(LlamaModel, "forward", forward)
        run = make_run(make_pair("llama"), prompts, Options(**options, lanes=2, num_threads=1))
        found = collect_lanes(run, record=False, partial=False, progress=False, turn=AtRandom(0))
    result = make_lanes_result(run, found)
    assert result.meta["handovers"]
    steps = int(result.rounds["batch"].sum())
    longest = max(map(len, prompts))
    # Filling of shorter prompts included; a row that was read again would come on top, in tokens
    # that no prompt has.
    assert sum(counted) - steps <= len(prompts) * (longest - 1)
    assert max(counted) <= 3 * (longest - 1)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("threads", [False, True])
def test_an_interrupt_keeps_what_is_done(threads, tmp_path, monkeypatch):
    """Interrupt a forward, or a consumer of events, anywhere in either lane."""
    monkeypatch.setattr(workers, "_cores", lambda: 2 if threads else 1)
    pair = make_pair("llama")
    options = RUN | {"max_new_tokens": BUDGETS, "record": True, "lanes": 2}
    whole = generate(pair, make_prompts(), **options)
    places = (
        (LlamaModel, "forward"),
        (Recorder, "observe"),
        (Builder, "forward"),
        (laned.Progress, "observe"),
    )
    kept = []
    for owner, name in places:
        for number in (2, 15, 40):
            with monkeypatch.context() as patch:
                Interrupting(number).before(patch, owner, name)
                result = generate(pair, make_prompts(), on_interrupt="partial", **options)
            for ours, theirs, status, expected in zip(
                result.tokens, whole.tokens, result.status, whole.status, strict=True
            ):
                assert ours == theirs[: len(ours)]
                assert status == "interrupted" or (ours, status) == (theirs, expected)
            check_lanes(result)
            kept.append(sum(map(len, result.tokens)))
            for lane in result.lanes:
                lane.trace.save(tmp_path / "lane.safetensors")
                loaded = sv.Trace.load(tmp_path / "lane.safetensors")
                assert loaded.meta["status"] == lane.status
    assert 0 in kept
    assert 0 < max(kept) < sum(map(len, whole.tokens))


@pytest.mark.parametrize("threads", [False, True])
def test_an_interrupt_and_an_error_reach_the_caller(threads, monkeypatch):
    monkeypatch.setattr(workers, "_cores", lambda: 2 if threads else 1)
    for error in (KeyboardInterrupt, OSError):
        with monkeypatch.context() as patch:
            Interrupting(9, error).before(patch, LlamaModel, "forward")
            with pytest.raises(error):
                generate(make_pair("llama"), make_prompts(), lanes=2, **RUN)
    assert [thread for thread in threading.enumerate() if "specviz" in thread.name] == []


@pytest.mark.slow
def test_ctrl_c_stops_both_threads(monkeypatch):
    """As a signal does, it reaches the main thread, which computes nothing meanwhile."""
    monkeypatch.setattr(workers, "_cores", lambda: 2)
    pair = make_pair("llama")
    options = RUN | {"max_new_tokens": 60, "lanes": 2}
    whole = generate(pair, make_prompts(), **options)
    plain, count = laned.Progress.observe, itertools.count()

    def observe(self, event):
        if next(count) == 25:
            _thread.interrupt_main()
        plain(self, event)

    monkeypatch.setattr(laned.Progress, "observe", observe)
    result = generate(pair, make_prompts(), on_interrupt="partial", record=True, **options)
    assert "interrupted" in result.status
    for ours, theirs in zip(result.tokens, whole.tokens, strict=True):
        assert ours == theirs[: len(ours)]
    check_lanes(result)
    assert [thread for thread in threading.enumerate() if "specviz" in thread.name] == []


@pytest.mark.slow
def test_an_interrupt_between_two_lines_of_a_handover_loses_no_text(monkeypatch):
    """A row that is on its way counts as interrupted, with the text that it had."""
    monkeypatch.setattr(workers, "_cores", lambda: 1)
    pair = make_pair("llama")
    options = RUN | {"max_new_tokens": [1, 24, 1, 24, 1, 24], "lanes": 2}
    whole = generate(pair, make_prompts()[:6], **options)
    for owner, name in (
        (laned.Admission, "_give"),
        (laned.Lane, "advance"),
    ):
        for number in range(5, 14):
            with monkeypatch.context() as patch:
                Interrupting(number).before(patch, owner, name)
                result = generate(pair, make_prompts()[:6], on_interrupt="partial", **options)
            for ours, theirs in zip(result.tokens, whole.tokens, strict=True):
                assert ours == theirs[: len(ours)]
            assert int(result.rows["gained"].sum()) == sum(map(len, result.tokens))


def test_nonfinite_logits_end_a_row_in_its_lane():
    pair = poisoned_pair("target", "NaN in the K/V")
    whole = generate(pair, make_prompts(), **RUN)
    assert "not_finite" in whole.status
    for seed in range(3):
        result = in_turns(seed, pair)
        assert (result.tokens, result.status) == (whole.tokens, whole.status)


def test_a_fault_is_found_in_each_lane():
    result = in_turns(0, strategy=sv.strategy("eqspec", break_invariant="positions"))
    for lane in result.lanes:
        assert sv.check_invariants(lane.trace)
        assert lane.meta["valid"] is False


def test_memory_that_runs_out_names_the_remedy(monkeypatch):
    monkeypatch.setattr(workers, "_cores", lambda: 2)
    Interrupting(9, torch.OutOfMemoryError).before(monkeypatch, LlamaModel, "forward")
    with pytest.raises(MemoryError, match=r"batch_size=6 in 2 lanes .*; pass a smaller batch_size"):
        generate(make_pair("llama"), make_prompts(), lanes=2, **RUN)


class Own(DraftLength):
    """A rule of one's own for K."""


REFUSED: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "three": ({"lanes": 3}, ("lanes must be at most 2, got 3",)),
    "odd": ({"batch_size": 5}, ("batch_size must be even for lanes=2", "pass 6, or lanes=1")),
    "one row": ({"batch_size": 1}, ("batch_size must be even", "pass 2, or lanes=1")),
    "object": ({"num_draft_tokens": Own(3)}, ("num_draft_tokens must be an int or 'auto'",)),
    "graphs": ({"graphs": True}, ("graphs=True",)),
    "budget": (
        {"memory_budget": "1GB"},
        ("lanes must be 1 for a memory budget", "pass lanes=1, or no budget"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_combined_is_refused(name):
    options, parts = REFUSED[name]
    options = RUN | {"lanes": 2} | options
    begins, *others = parts
    check_refusal(lambda: generate(make_pair("llama"), make_prompts(), **options), begins, *others)


def test_both_lanes_run_one_compiled_model(monkeypatch):
    """Nothing is compiled here: the weights are laid out again, and are theirs again afterwards."""
    monkeypatch.setattr(workers, "_cores", lambda: 2)
    monkeypatch.setattr(torch, "compile", lambda model, options: model)
    made = []
    plain = CompiledModel.__init__

    def init(self, model):
        made.append(model)
        plain(self, model)

    monkeypatch.setattr(CompiledModel, "__init__", init)
    pair = make_pair("llama")
    before = dict(pair.target.named_parameters(remove_duplicate=False))
    options = RUN | {"max_new_tokens": BUDGETS, "sampling": SAMPLINGS["gumbel"]}
    result = generate(pair, make_prompts(), lanes=2, compile=True, **options)
    assert result.tokens == in_one("inplace", "gumbel").tokens
    assert made == [pair.target, pair.draft]
    after = dict(pair.target.named_parameters(remove_duplicate=False))
    assert all(after[name] is before[name] for name in before)


def test_live_events_are_those_of_one_lane():
    begins = "lanes must be 1 where a run's events are read one by one, got 2"
    check_refusal(lambda: sv.decode(make_pair("llama"), [[1]], lanes=2), begins)


def test_chats_and_plans_are_those_of_one_lane():
    pair = make_pair("llama")
    check_refusal(lambda: sv.chat(pair, lanes=2), "lanes must be 1 in a chat", "leave it out")
    begins = "lanes must be 1 for a memory budget"
    check_refusal(lambda: sv.plan("1GB", pair, [[1]], lanes=2), begins)


def test_graphs_none_says_why_nothing_is_captured():
    with pytest.warns(UserWarning, match="nothing is captured, since"):
        generate(make_pair("llama"), make_prompts()[:2], lanes=2, graphs=None, **RUN)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["greedy", "gumbel", "rejection"])
@pytest.mark.parametrize("name", ["inplace", "eqspec", "exspec", "masking"])
def test_streams_write_the_text_of_one_lane(name, kind):
    """In float64, where no two logits of the tiny models come near each other."""
    pair = make_pair("llama", torch.float64, "cuda")
    options = RUN | {"strategy": name, "sampling": SAMPLINGS[kind], "max_new_tokens": BUDGETS}
    whole = generate(pair, make_prompts(), **options)
    for _ in range(5):
        result = generate(pair, make_prompts(), lanes=2, record=True, **options)
        assert result.tokens == whole.tokens
        check_lanes(result)
        table = result.timeline
        assert (table["start_ms"] <= table["stop_ms"]).all()
