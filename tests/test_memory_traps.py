"""Mistakes that memory models and their measurements fall into: each is planted, and found.

Every check that finds a mistake here holds without it.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bench_rows import row
from conftest import generate
from conftest import make_pair as make_tiny_pair
from test_memory import OPTIONS, make_pair, make_prompts, models_of, predict
from transformers import LlamaModel

import specviz as sv
from specviz.bench import check, make_table
from specviz.bench.measuring import MB, allocated_bytes
from specviz.costs import predict as speed
from specviz.costs.ceilings import Ceilings
from specviz.costs.memory import peak_bytes
from specviz.costs.predict import DecodingJob
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import named_pair
from specviz.engine import peak
from specviz.engine.kv.store import KVStore
from specviz.generation import plan


def test_a_peak_that_adds_up_the_phases_is_found() -> None:
    """No two phases run at the same time, so that their needs do not add up."""
    pair = make_pair(scale=2)
    how = sv.strategy("inplace")
    with sv.PeakMeter(models_of(pair)) as held:
        sv.generate(pair, make_prompts(60), strategy=how, progress=False, **OPTIONS)
    table = predict(pair, how, 60)
    measured = pytest.approx(held.peak_bytes + held.weight_bytes, rel=0.02)
    assert peak_bytes(table) == measured
    assert table["bytes"].sum() != measured


class Allocator:
    """Of a GPU: what it has taken from the device it keeps, and gives out again."""

    def __init__(self) -> None:
        self.now = self.most = {"allocated": 3e6, "reserved": 3e6}

    def run(self, size: float) -> None:
        allocated = self.now["allocated"] + size
        reserved = max(self.now["reserved"], allocated)
        self.most = {name: max(self.most[name], allocated) for name in self.most}
        self.most["reserved"] = max(self.most["reserved"], reserved)
        self.now = self.now | {"reserved": reserved}

    def reset(self, *_: object) -> None:
        self.most = dict(self.now)


def measured_mb(monkeypatch: pytest.MonkeyPatch, read: str, *before: float) -> float:
    """What a meter finds of a run of 5 MB, after others of these sizes."""
    allocator = Allocator()
    for size in before:
        allocator.run(size)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: allocator.now[read])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *_: allocator.most[read])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", allocator.reset)
    return allocated_bytes([0], lambda: allocator.run(5 * MB)) / MB


@pytest.mark.parametrize(("read", "is_equal"), [("allocated", True), ("reserved", False)])
def test_a_meter_that_reads_what_an_allocator_keeps_is_found(
    read: str, is_equal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same run, first and after a larger one, takes the same memory."""
    first = measured_mb(monkeypatch, read)
    later = measured_mb(monkeypatch, read, 40 * MB)
    assert (first == later == 5) == is_equal
    sides = [("inplace", first), ("eqspec", later)]
    table = make_table([row(name, 1.0, memory_mb=memory) for name, memory in sides])
    assert ("memory" not in set(check(table)["line"])) == is_equal


def check_meter() -> None:
    """Of ten tensors, one after the other, the peak is that of one."""
    with sv.PeakMeter() as meter:
        for _ in range(10):
            torch.zeros(1000)
    assert 4000 <= meter.peak_bytes < 8100


def test_a_meter_that_counts_what_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    check_meter()

    def never_expires(storage: torch.UntypedStorage) -> Any:
        return SimpleNamespace(expired=lambda: False, storage=storage)

    monkeypatch.setattr(peak, "StorageWeakRef", never_expires)
    with pytest.raises(AssertionError):
        check_meter()


RUN: dict[str, Any] = {"batch_size": 1, "num_draft_tokens": 3, "max_new_tokens": 6}
MESSAGES = {name: [(7 * i + j) % 97 for j in range(30)] for i, name in enumerate("abcdef")}


def check_chat() -> None:
    """What is kept between turns and what a turn takes fit into the budget together."""
    pair = make_tiny_pair("llama")
    least = sv.plan("1GB", pair, list(MESSAGES.values()), **RUN).least_bytes
    budget = int(1.5 * least)
    talk = sv.chat(pair, memory_budget=budget, **RUN)
    for _ in range(2):
        talk.say(MESSAGES)
        assert talk.result is not None
        assert talk.result.plan is not None
        kept = int(talk.turns["kept_bytes"].iloc[-1])
        assert kept > 0
        assert kept + talk.result.plan.peak_bytes <= budget, "kept beyond the budget"


@pytest.mark.slow
def test_kv_between_turns_that_does_not_count_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat that keeps all of it, while each turn has the whole budget."""
    check_chat()
    begin = KVStore.begin
    monkeypatch.setattr(KVStore, "begin", lambda self, names, limit_bytes: begin(self, names, None))
    with pytest.raises(AssertionError, match="kept beyond the budget"):
        check_chat()


def check_reading() -> None:
    """A plan without the draft's K/V is slower, and more so for longer texts."""
    ceilings = Ceilings(((1e6, 1e10),), {"float32": ((1, 1e11),)}, launch_s=1e-6)
    roofline = Roofline(*named_pair("qwen3-8b/0.6b"), ceilings)
    kept = []
    for prompt in (100, 400, 1600):
        job = DecodingJob(8, prompt, 400, rates=(0.8, 0.6, 0.4))
        given: dict[str, Any] = {"batch_size": 4, "num_draft_tokens": 3, "levers": sv.Levers()}
        without = speed.tokens_per_s(roofline, job, keeps_draft=False, **given)
        kept.append(without / speed.tokens_per_s(roofline, job, **given))
    assert kept[0] < 0.95
    assert kept == sorted(kept, reverse=True)


def test_a_saving_of_memory_that_costs_no_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """K/V of the draft that is dropped has to be computed again in every round."""
    check_reading()
    monkeypatch.setattr(speed, "_reading_s", lambda *_: 0.0)
    with pytest.raises(AssertionError):
        check_reading()


def test_what_a_drafter_without_kv_reads_again_shows_in_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same texts take many more tokens in the draft's forwards."""
    pair = make_tiny_pair("llama")
    read: list[int] = []
    forward = LlamaModel.forward

    def counted(self: LlamaModel, input_ids: torch.Tensor, **more: Any) -> Any:
        if self is pair.draft.model:
            read.append(input_ids.numel())
        return forward(self, input_ids, **more)

    monkeypatch.setattr(LlamaModel, "forward", counted)
    texts, totals = [], []
    for keep_cache in (True, False):
        read.clear()
        drafter = sv.drafter("model", keep_cache=keep_cache)
        result = generate(pair, list(MESSAGES.values()), drafter=drafter, **RUN)
        texts.append(result.tokens)
        totals.append(sum(read))
    assert texts[0] == texts[1]
    assert totals[1] > 1.5 * totals[0]


def check_baseline() -> None:
    """Autoregressive decoding fills a budget with rows: the draft takes nothing of it."""
    pair = make_tiny_pair("llama")
    prompts = list(MESSAGES.values())
    run = {"strategy": "autoregressive", "batch_size": 6, "max_new_tokens": 6}
    weights = sum(parameter.nbytes for parameter in pair.target.parameters())
    most = sv.plan("1GB", pair, prompts, **run)
    assert most.weight_bytes == weights, "weights of the target alone"
    budget = sv.plan("1GB", pair, prompts, **RUN).least_bytes
    rows = sv.plan(budget, pair, prompts, **run).options["batch_size"]
    assert rows > RUN["batch_size"]


def test_a_baseline_that_pays_for_a_draft_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory would hold weights that it does not use, in place of rows."""
    check_baseline()
    monkeypatch.setattr(plan, "_models", lambda pair, options: [pair.target, pair.draft])
    with pytest.raises(AssertionError, match="weights of the target alone"):
        check_baseline()
