"""Two lanes: the text is that of one, and each lane's record is in step."""

import _thread
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
import published
import pytest
import torch
from conftest import check_refusal, generate, make_pair, make_prompts
from test_interrupt import Interrupting
from test_numbers import SAMPLINGS, poisoned_pair
from tiny_heads import pair_with
from transformers import LlamaModel

import specviz as sv
from specviz import metrics
from specviz.engine import lanes
from specviz.engine.draft_length import DraftLength
from specviz.engine.kv.compiled import CompiledModel
from specviz.engine.lanes import Lane, make_lanes
from specviz.engine.options import Options
from specviz.engine.recorder import Recorder
from specviz.engine.run import make_run
from specviz.engine.strategies import STRATEGIES
from specviz.generation import lanes as laned
from specviz.generation.lanes import run_lanes
from specviz.record.builder import Builder
from specviz.record.replay import Replay
from specviz.record.schema import PHASES
from specviz.simulation import Policy

RUN = {"max_new_tokens": 20, "batch_size": 6, "num_draft_tokens": 4}
VALID = [name for name, kind in STRATEGIES.items() if kind().promises]
# With rejection, how these two shorten a round depends on the other rows.
ALONE = [name for name in VALID if name != "rollback"]
BUDGETS = [3, 20, 5, 18, 20, 1, 20, 9, 20, 20]


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
    return run_lanes(run, record=record, partial=False, progress=False, turn=AtRandom(seed))


@cache
def in_one(name: str, kind: str) -> sv.Result:
    options = RUN | {"max_new_tokens": BUDGETS, "sampling": SAMPLINGS[kind]}
    return generate(make_pair("llama"), make_prompts(), strategy=name, **options)


def check_lanes(result: sv.Result):
    """Both records hold all invariants, replay, and add up to the result."""
    seen = []
    for number, lane in enumerate(result.lanes):
        assert list(sv.check_invariants(lane.trace)) == []
        assert len(list(Replay(lane.trace).frames())) == 5 * lane.trace.num_rounds
        assert len(lane.spans_ms) == lane.trace.num_rounds
        assert not metrics.waste(lane.trace)["target_read"].iloc[0] < 1
        assert lane.meta["lane"] == number
        assert lane.prompts == result.prompts
        own = [i for i, status in enumerate(lane.status) if status != "elsewhere"]
        assert set(lane.rows["request"].tolist()) <= set(own)
        for i in own:
            assert (lane.tokens[i], lane.status[i]) == (result.tokens[i], result.status[i])
        seen += own
    assert len(seen) == len(set(seen)), "a request is in one lane"
    assert len(result.rounds["batch"]) == sum(lane.trace.num_rounds for lane in result.lanes)
    counts = np.bincount(result.rows["round"], minlength=len(result.rounds["batch"]))
    assert counts.tolist() == result.rounds["batch"].tolist()


@pytest.mark.sweep(6)
@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("name", ALONE)
def test_any_interleaving_writes_the_text_of_one_lane(name, kind):
    whole = in_one(name, kind)
    options = {"strategy": name, "sampling": SAMPLINGS[kind], "max_new_tokens": BUDGETS}
    for seed in range(4):
        result = in_turns(seed, record=seed == 0, **options)
        assert (result.tokens, result.status) == (whole.tokens, whole.status)
        if seed == 0:
            check_lanes(result)


VARIANTS: dict[str, dict[str, object]] = {
    "rollback": {"strategy": "rollback"},
    "lookup": {"drafter": "lookup"},
    "tree": {"drafter": sv.drafter("tree", depth=3, width=2, children=2)},
    "tree in masking": {
        "drafter": sv.drafter("tree", depth=3, width=2, children=2),
        "strategy": "masking",
    },
    "tetris": {"selector": sv.selector("tetris", extra=2, max_wait=2)},
    "no draft K/V": {"levers": sv.Levers(prefill_tokens=9, keep_draft=False)},
    "static": {"strategy": sv.strategy("eqspec", refill=False)},
    "published": {"strategy": published.strategy("exspec", window=8, drop_cache=True)},
    "sorted": {"strategy": sv.strategy("exspec", window=8, sort_prompts=True, fallback="wait")},
    "auto": {"num_draft_tokens": "auto"},
    "two rows": {"batch_size": 2},
    "deterministic": {"deterministic": True},
    "eagle3": {"drafter": "eagle3", "num_draft_tokens": 3},
    "medusa": {"drafter": "medusa", "num_draft_tokens": 3},
}


@pytest.mark.sweep(16)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_option_keeps_its_text(variant):
    """Two interleavings of each, recorded."""
    options = RUN | {"max_new_tokens": BUDGETS} | VARIANTS[variant]
    pair = pair_with("llama", variant) if variant in ("eagle3", "medusa") else make_pair("llama")
    whole = generate(pair, make_prompts(), **options)
    for seed in range(2):
        result = in_turns(seed, pair, **options)
        assert result.tokens == whole.tokens
        check_lanes(result)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", VALID)
def test_threads_write_the_text_of_one_lane(name, monkeypatch):
    monkeypatch.setattr(lanes, "_cores", lambda: 2)
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
    monkeypatch.setattr(lanes, "_cores", lambda: 2)
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


def test_prompts_are_read_while_the_other_lane_does_not_verify(monkeypatch):
    """Both lanes never take the target at once, and write the text of one lane.

    Each phase that takes it lasts a while, so that two of them would meet.
    """
    monkeypatch.setattr(lanes, "_cores", lambda: 2)
    phases = Counter()
    takes_target = threading.Lock()
    advance = lanes.Workers._advance

    def watched(self, lane):
        phase = PHASES[phases[lane.number] % len(PHASES)]
        phases[lane.number] += 1
        if phase == "draft" or (phase == "schedule" and not lane.run.state.waiting):
            return advance(self, lane)
        assert takes_target.acquire(blocking=False), f"both lanes take the target in {phase}"
        try:
            time.sleep(0.005)
            return advance(self, lane)
        finally:
            takes_target.release()

    monkeypatch.setattr(lanes.Workers, "_advance", watched)
    result = generate(make_pair("llama"), make_prompts(), lanes=2, **RUN)
    assert result.tokens == generate(make_pair("llama"), make_prompts(), **RUN).tokens


def test_each_lane_computes_with_its_share_of_the_threads(monkeypatch):
    """Of four threads with two, or with as many as the caller says.

    With all of them in each, the lanes would wait for one another's operations.
    """
    monkeypatch.setattr(lanes, "_cores", lambda: 2)
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


@pytest.mark.parametrize("kind", SAMPLINGS)
def test_lanes_share_only_what_no_round_changes(kind):
    """A chooser keeps what it drew for the rows of its last round, so each lane has its own."""
    options = Options(**RUN, lanes=2, num_threads=1, sampling=SAMPLINGS[kind])
    found = make_lanes(make_run(make_pair("llama"), make_prompts(), options))
    first, second = (lane.run.state for lane in found)
    for name in ("chooser", "batch", "waiting", "layout"):
        assert getattr(first, name) is not getattr(second, name), name
    for model in ("target", "draft"):
        assert first.caches[model] is not second.caches[model], model
    assert found[0].run.draft_length is not found[1].run.draft_length
    assert found[0].run.meter is not found[1].run.meter


def test_without_two_cores_lanes_take_turns(monkeypatch):
    monkeypatch.setattr(lanes, "_cores", lambda: 1)
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


def test_a_free_row_takes_the_next_prompt():
    """Ten prompts, three rows a lane: both begin full, and the lane that is ahead takes more."""
    result = in_turns(0, max_new_tokens=[1, 20] * 5, batch_size=6)
    assert [lane.rounds["batch"][0] for lane in result.lanes] == [3, 3]
    shares = [len(set(lane.rows["request"].tolist())) for lane in result.lanes]
    assert sum(shares) == 10
    assert shares[0] > shares[1]
    again = in_turns(0, max_new_tokens=[1, 20] * 5, batch_size=6)
    assert [lane.status for lane in again.lanes] == [lane.status for lane in result.lanes]
    few = in_turns(1, max_new_tokens=8, batch_size=20)
    assert [lane.rounds["batch"][0] for lane in few.lanes] == [5, 5]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("threads", [False, True])
def test_an_interrupt_keeps_what_is_done(threads, tmp_path, monkeypatch):
    """Interrupt a forward, or a consumer of events, anywhere in either lane."""
    monkeypatch.setattr(lanes, "_cores", lambda: 2 if threads else 1)
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
    monkeypatch.setattr(lanes, "_cores", lambda: 2 if threads else 1)
    for error in (KeyboardInterrupt, OSError):
        with monkeypatch.context() as patch:
            Interrupting(9, error).before(patch, LlamaModel, "forward")
            with pytest.raises(error):
                generate(make_pair("llama"), make_prompts(), lanes=2, **RUN)
    assert [thread for thread in threading.enumerate() if "specviz" in thread.name] == []


@pytest.mark.slow
def test_ctrl_c_stops_both_threads(monkeypatch):
    """As a signal does, it reaches the main thread, which computes nothing meanwhile."""
    monkeypatch.setattr(lanes, "_cores", lambda: 2)
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
    monkeypatch.setattr(lanes, "_cores", lambda: 2)
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
        ("lanes=2 needs memory that no plan counts", "leave it out, or pass no budget"),
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
    monkeypatch.setattr(lanes, "_cores", lambda: 2)
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
    check_refusal(lambda: sv.plan("1GB", pair, [[1]], lanes=2), "lanes=2 needs memory")


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
