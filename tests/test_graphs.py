"""Replayed phases write what the loop writes: traced on the CPU, captured on a GPU."""

import shutil
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from conftest import CLASSES, check_refusal, generate, generate_alone, make_pair, make_prompts
from torch import Tensor
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx

import specviz as sv
from specviz.engine import accept, batch
from specviz.engine.graphs import WINDOW, PhaseGraphs, next_window
from specviz.engine.kv.transfer import to_host
from specviz.engine.options import Options
from specviz.engine.run import Run, make_run


def traced(run: Run, function: Callable[[], Any]) -> Callable[[], Any]:
    """Replay as a CUDA graph does: the kernels of the function on its memory, without its Python.

    A read of a value on the host makes the tracer fail, as it makes a capture fail. Unlike a
    capture, tracing computes: what it wrote is taken back.
    """
    state = run.state
    batch_places = [state.batch.tokens, state.batch.lengths, state.batch.limits, state.batch.waited]
    places = [*batch_places, state.layout.start]
    for cached in state.caches.values():
        for layer in cached.cache.layers:
            if layer.is_initialized:
                places += [layer.keys, layer.values]
    before = [place.clone() for place in places]
    results = []

    def tensors() -> list[Tensor]:
        results.append(function())
        return leaves(results[0])

    # A graph is captured on a GPU, where torch takes the argmax.
    with patch.object(accept, "argmax_by_numpy", partial(torch.argmax, dim=-1)):
        graph = make_fx(tensors)()
    for place, value in zip(places, before, strict=True):
        place.copy_(value)
    static = [torch.empty(leaf.shape, dtype=leaf.dtype) for leaf in leaves(results[0])]
    result = with_leaves(results[0], static)

    def again() -> Any:
        for place, value in zip(static, graph(), strict=True):
            place.copy_(value)
        return result

    return again


def names_of(value: Any) -> list[str]:
    """The fields of a dataclass or a named tuple that hold tensors."""
    names = getattr(value, "_fields", None) or [field.name for field in fields(value)]
    return [name for name in names if isinstance(getattr(value, name), Tensor)]


def leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [getattr(value, name) for name in names_of(value)]


def with_leaves(value: Any, parts: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        return parts[0]
    changed = dict(zip(names_of(value), parts, strict=True))
    return value._replace(**changed) if hasattr(value, "_replace") else replace(value, **changed)


def outputs(run: Run) -> list[list[int]]:
    done = {}
    for event in run.events():
        if event.phase == "accept":
            done |= {
                row.request.index: row.output for row in event.state.batch.rows if row.finished
            }
    return [done[i] for i in range(len(run.requests))]


NEW_TOKENS = 10
EVERY = slice(None)
QUICK = [("llama", name) for name in ("autoregressive", "inplace", "eqspec")]
CASES = [("llama", "exspec"), ("llama", "rollback"), ("gpt2", "inplace")]
# A capture does not depend on the class, as long as its forward reads nothing on the host.
OTHER_CLASSES = [(name, "inplace") for name in CLASSES if name not in ("llama", "gpt2")]
# To trace a round takes seconds, and with three rows it is traced for batches of 3, 2 and 1. That
# replays of several sizes stand side by side, does not depend on strategy or class.
OF_SEVERAL_SIZES = [("llama", "inplace"), ("llama", "exspec")]


def prepared(
    name: str = "llama", device: str = "cpu", prompts: slice = EVERY, **options: Any
) -> Run:
    """A run of five short prompts, or of some of them, three at a time."""
    given = {"batch_size": 3, "max_new_tokens": NEW_TOKENS, "num_draft_tokens": 2} | options
    return make_run(make_pair(name, device=device), make_prompts()[:5][prompts], Options(**given))


@cache
def right(name: str = "llama", device: str = "cpu") -> list[list[int]]:
    return generate_alone(make_pair(name, device=device).target, make_prompts()[:5], NEW_TOKENS)


@pytest.mark.sweep(6)
@pytest.mark.parametrize(
    ("name", "strategy"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in [*CASES, *OTHER_CLASSES])],
)
def test_replayed_phases_write_the_same_text(name, strategy):
    several = (name, strategy) in OF_SEVERAL_SIZES
    run = prepared(name, strategy=strategy, batch_size=3 if several else 2)
    captured, replayed = count_replays(run, name)
    assert captured > 0
    assert captured % 3 == 0, "drafting, verifying and accepting are captured together"
    assert captured > 3 or not several, "the last row, alone, has replays of its own"
    assert replayed > captured, "what was captured was used again"


@pytest.mark.slow
def test_replayed_selection_writes_the_same_text():
    """What TETRIS verifies has one shape in every round, so packed forwards are replayed, too."""
    run = prepared(strategy="inplace", batch_size=2, selector=sv.selector("tetris", extra=2))
    run.try_models()
    run.state.caches["target"].packs = "always"
    captured, replayed = count_replays(run)
    assert captured > 0
    assert captured % 4 == 0, "so is the selection"
    assert replayed > captured


def count_replays(run: Run, name: str = "llama", prompts: slice = EVERY) -> tuple[int, int]:
    """Run it with replays in the place of CUDA graphs; count captures and replays."""
    captured, replayed = 0, 0

    def counted(function: Callable[[], Any]) -> Callable[[], Any]:
        nonlocal captured
        again, captured = traced(run, function), captured + 1

        def counting() -> Any:
            nonlocal replayed
            replayed += 1
            return again()

        return counting

    run.state.graphs = PhaseGraphs(counted)
    assert outputs(run) == right(name)[prompts]
    return captured, replayed


@pytest.mark.slow
def test_synthetic_drafts_are_new_in_each_replay():
    drafter = sv.drafter("synthetic", rates=[0.7, 0.5])
    run, plain = (prepared(drafter=drafter, batch_size=2) for _ in range(2))
    run.state.graphs = PhaseGraphs(lambda function: traced(run, function))
    assert outputs(run) == outputs(plain) == right()
    assert run.state.round == plain.state.round, "the same drafts were accepted"


def test_what_cannot_be_captured_runs_uncaptured_with_one_warning():
    run = prepared()
    tried = 0

    def refuse(function: Callable[[], Any]) -> Callable[[], Any]:
        nonlocal tried
        tried += 1
        raise RuntimeError("operation not permitted when stream is capturing")

    run.state.graphs = PhaseGraphs(refuse)
    with pytest.warns(
        UserWarning,
        match=r"the round cannot be captured \(RuntimeError: operation not.*runs uncaptured",
    ) as caught:
        assert outputs(run) == right()
    assert (tried, len(caught)) == (1, 1)


def test_a_phase_that_reads_on_the_host_cannot_be_captured():
    """The tracer that stands in for a capture does find such a read."""
    run = prepared()
    next(event for event in run.events() if event.phase == "draft")
    with pytest.raises(RuntimeError, match=r"data-dependent|item"):
        traced(run, lambda: run.state.batch.lengths * int(run.state.batch.lengths[0]))


def test_a_window_is_rounded_up_to_few_sizes_and_never_beyond_the_slabs():
    windows = [next_window(window, 1000) for window in (1, WINDOW, WINDOW + 1, 999)]
    assert windows == [WINDOW, WINDOW, 2 * WINDOW, 1000]


REFUSED = {
    "graphs=True, but the pair is on cpu, and only CUDA has graphs": {"graphs": True},
    "graphs must be a bool, got 'yes'": {"graphs": "yes"},
    "compile must be a bool, got 1": {"compile": 1},
    "graphs=True replays phases without their records": {"graphs": True, "record": True},
}


@pytest.mark.parametrize("begins", REFUSED)
def test_impossible_requests_are_refused(begins):
    check_refusal(lambda: generate(make_pair("llama"), [[1]], **REFUSED[begins]), begins)


def test_graphs_none_warns_where_nothing_can_be_captured():
    warning = "^nothing is captured, since the pair is on cpu, and only CUDA has graphs$"
    pair, prompts = make_pair("llama"), make_prompts()[:2]
    with pytest.warns(UserWarning, match=warning) as warned:
        tokens = generate(pair, prompts, graphs=None, max_new_tokens=4).tokens
    assert len(warned) == 1
    assert tokens == generate(pair, prompts, max_new_tokens=4).tokens


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU")
@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script_method.*:DeprecationWarning"
)  # torch's own, when its compiler is loaded
def test_compiled_models_write_the_same_text():
    torch._dynamo.reset()
    counters.clear()
    pair, prompts = make_pair("llama"), make_prompts()[2:5]
    run = {"batch_size": 3, "max_new_tokens": 6, "num_draft_tokens": 2}
    compiled = generate(pair, prompts, **run, compile=True)
    assert compiled.tokens == generate(pair, prompts, **run).tokens
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["graph_break"], "a forward is one graph"


@pytest.mark.slow
def test_many_shapes_all_run_compiled(monkeypatch):
    """The models share their code, and each kind of shape is a variant: more than torch allows."""
    torch._dynamo.reset()
    counters.clear()
    # The same forms, without a compiler's minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    pair, prompts = make_pair("llama"), make_prompts()
    run = {"max_new_tokens": 6, "num_draft_tokens": 2}
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for strategy, batch_size in (("inplace", 1), ("eqspec", 4), ("inplace", 2)):
            run |= {"strategy": strategy, "batch_size": batch_size}
            compiled = generate(pair, prompts, **run, compile=True)
            assert compiled.tokens == generate(pair, prompts, **run).tokens
    assert counters["stats"]["unique_graphs"] > torch._dynamo.config.recompile_limit


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "strategy"), [*CASES, *OTHER_CLASSES])
def test_cuda_graphs_write_the_same_text(name, strategy):
    run = prepared(name, "cuda", strategy=strategy, graphs=True)
    assert outputs(run) == right(name, "cuda")
    assert run.state.graphs.active, "nothing had to run uncaptured"


@pytest.mark.gpu
@pytest.mark.parametrize("packs", ["worth", "always"])
@pytest.mark.parametrize("selector", ["tetris", "threshold"])
def test_cuda_graphs_select_drafts(selector, packs):
    run = prepared("llama", "cuda", strategy="inplace", selector=selector, graphs=True)
    run.try_models()
    run.state.caches["target"].packs = packs
    assert outputs(run) == right("llama", "cuda")
    assert run.state.graphs.active


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "exspec"])
def test_a_round_with_graphs_reads_once_on_the_host(strategy, monkeypatch):
    """In a round in which no row enters or leaves: no synchronising call, and one awaited copy."""
    options = Options(strategy=strategy, batch_size=3, max_new_tokens=100, graphs=True)
    run = make_run(make_pair("llama", device="cuda"), make_prompts()[:3], options)
    run.state.eos_token_ids = run.state.eos_token_ids[:0]
    copied = []
    monkeypatch.setattr(
        batch, "to_host", lambda values: (copied.append(values.shape), to_host(values))[1]
    )
    events = run.events()
    for event in events:
        if event.round == 4 and event.phase == "synchronise":
            break
    copied.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.cuda.set_sync_debug_mode("warn")  # warns of itself, too
            for event in events:
                if event.phase == "synchronise":
                    break
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len(run.state.batch) == 3
    assert len(copied) == 1
    assert [
        str(w.message) for w in caught if "called a synchronizing CUDA operation" in str(w.message)
    ] == []


@pytest.mark.gpu
def test_a_copy_to_the_host_waits_for_what_was_launched_before():
    values = torch.zeros(4, dtype=torch.long, device="cuda")
    busy = torch.ones(4096, 4096, device="cuda")
    for _ in range(50):
        busy = busy @ busy / 4096
    values += busy[0, :4].long() + 6  # ones, after some milliseconds
    assert to_host(values).tolist() == [7] * 4
    assert to_host(values).device.type == "cpu"
