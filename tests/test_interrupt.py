"""Interrupted runs, and runs out of memory: what is written is kept, and no text changes."""

import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from conftest import generate, make_pair, make_prompts
from test_numbers import ALONE, SAMPLINGS
from transformers import LlamaForCausalLM, LlamaModel

import specviz as sv
from specviz.engine.draft_length import Auto, Spent
from specviz.engine.recorder import Recorder
from specviz.engine.timing import Stopwatch
from specviz.generation import collect
from specviz.record.builder import Builder
from specviz.record.replay import Replay
from specviz.record.schema import PHASES

RUN = {"max_new_tokens": 16, "batch_size": 4, "num_draft_tokens": 4}


class Interrupting:
    """Raise an error at the call of a given number, counted over all functions that it precedes."""

    def __init__(self, number: int, error: type[BaseException] = KeyboardInterrupt):
        self.left, self.error = number, error

    def before(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str):
        plain = getattr(owner, name)

        def call(*arguments: object, **more: object) -> object:
            self.left -= 1
            if self.left == 0:
                raise self.error
            return plain(*arguments, **more)

        monkeypatch.setattr(owner, name, call)


def check_partial(result: sv.Result, whole: sv.Result):
    """Finished rows are complete; others are marked and kept as far as they came."""
    for ours, theirs, status, expected in zip(
        result.tokens, whole.tokens, result.status, whole.status, strict=True
    ):
        assert ours == theirs[: len(ours)]
        assert status == "interrupted" or (ours, status) == (theirs, expected)
    assert int(result.rows["gained"].sum()) == sum(map(len, result.tokens))
    assert len(result.summary) == 1
    assert len(result.texts) == len(whole.texts)


@functools.cache
def whole_run(name: str, kind: str) -> sv.Result:
    """The run of `RUN` that nothing interrupts."""
    run = RUN | {"strategy": name, "sampling": SAMPLINGS[kind]}
    return generate(make_pair("llama"), make_prompts(), **run)


@pytest.mark.sweep(8)
@pytest.mark.parametrize(("name", "kind"), ALONE)
def test_an_interrupted_run_returns_what_is_written(name, kind, tmp_path, monkeypatch):
    """Interrupt a forward: in the first prefill, and early, in the middle and late in the run."""
    run = RUN | {"strategy": name, "sampling": SAMPLINGS[kind], "record": True}
    pair = make_pair("llama")
    whole = whole_run(name, kind)
    left = []
    for number in (1, 9, 24):
        with monkeypatch.context() as patch:
            Interrupting(number).before(patch, LlamaModel, "forward")
            result = generate(pair, make_prompts(), on_interrupt="partial", **run)
        check_partial(result, whole)
        left.append(result.status.count("interrupted"))
        assert list(sv.check_invariants(result.trace)) == []
        result.trace.save(tmp_path / "run.safetensors")
        loaded = sv.Trace.load(tmp_path / "run.safetensors")
        assert [loaded.output(i) for i in range(len(result.tokens))] == result.tokens
        assert loaded.meta["status"] == result.status
        assert len(list(Replay(loaded).frames())) == 5 * loaded.num_rounds
    assert left[0] == len(whole.tokens) >= left[1] >= left[2] > 0


@pytest.mark.slow
def test_an_interrupt_between_any_two_steps(monkeypatch):
    """Interrupt the consumers of events anywhere, half-noted rounds included."""
    pair, prompts = make_pair("llama"), make_prompts()[:5]
    run = RUN | {"batch_size": 2, "record": True, "strategy": "exspec"}
    whole, kept = generate(pair, prompts, **run), []
    for number in itertools.count(1, 23):
        with monkeypatch.context() as patch:
            at = Interrupting(number)
            for owner, name in (
                (Recorder, "observe"),
                (Recorder, "_take_log"),
                (Builder, "forward"),
                (Builder, "round"),
                (collect.Progress, "observe"),
            ):
                at.before(patch, owner, name)
            result = generate(pair, prompts, on_interrupt="partial", **run)
        if at.left > 0:
            break
        check_partial(result, whole)
        assert list(sv.check_invariants(result.trace)) == []
        kept.append(sum(map(len, result.tokens)))
    assert kept == sorted(kept)
    assert kept[0] == 0
    assert len(set(kept)) > 10


def test_an_interrupt_while_a_round_is_noted(monkeypatch):
    run = RUN | {"strategy": "eqspec", "record": True}
    Interrupting(3).before(monkeypatch, Builder, "round")
    result = generate(make_pair("llama"), make_prompts(), on_interrupt="partial", **run)
    check_partial(result, whole_run("eqspec", "greedy"))
    assert result.trace.num_rounds == 2
    assert list(sv.check_invariants(result.trace)) == []


def test_an_interrupt_is_raised_by_default(monkeypatch):
    Interrupting(9).before(monkeypatch, LlamaModel, "forward")
    with pytest.raises(KeyboardInterrupt):
        generate(make_pair("llama"), make_prompts(), **RUN)


@pytest.fixture
def small_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A device with room for forwards of as many rows as the list holds."""
    rows, plain = [1000], LlamaModel.forward

    def forward(self: LlamaModel, input_ids: torch.Tensor, **more: object) -> object:
        if len(input_ids) > rows[0]:
            raise torch.OutOfMemoryError(f"tried to allocate {len(input_ids)} rows")
        return plain(self, input_ids, **more)

    monkeypatch.setattr(LlamaModel, "forward", forward)
    return rows


@contextmanager
def shrinking(pair: sv.Pair, small_device: list[int]) -> Iterator[None]:
    """Give the device room for 8 rows in the target's first six forwards, then for 3."""
    forwards = itertools.count()

    def count(*_: object):
        small_device[0] = 8 if next(forwards) < 6 else 3

    with pair.target.register_forward_hook(count):
        yield


@pytest.mark.sweep(8)
@pytest.mark.parametrize(("name", "kind"), ALONE)
def test_out_of_memory_halves_the_batch_and_changes_no_text(name, kind, small_device):
    """There is room for 8 rows in the first rounds and for 3 after that. K/V is computed again."""
    pair = make_pair("llama")
    strategy = sv.strategy(name, **({"window": 16} if name == "exspec" else {}))
    run = RUN | {"batch_size": 8, "strategy": strategy, "sampling": SAMPLINGS[kind]}
    expected = whole_run(name, kind)  # in batches of another size
    with (
        shrinking(pair, small_device),
        pytest.warns(UserWarning, match="out of memory at batch_size=") as caught,
    ):
        result = sv.generate(pair, make_prompts(), record=True, progress=False, **run)
    remedies = [str(each.message).partition("; ")[2].partition(" (")[0] for each in caught]
    assert remedies == [f"the run goes on with {b}" for b in (4, 2)]
    assert caught[0].filename == __file__
    assert (result.tokens, result.status) == (expected.tokens, expected.status)
    assert result.meta["halvings"] == 2
    assert result.meta["batch_size"] == 8
    assert list(sv.check_invariants(result.trace)) == []
    assert int(result.rows["gained"].sum()) == sum(map(len, result.tokens))


class Watched(Auto):
    """Remembers how many rows each reported round had."""

    def __init__(self):
        super().__init__(3)
        self.rows = list[int]()

    def learn(self, spent: Spent):
        super().learn(spent)
        self.rows.append(spent.rows)


@pytest.mark.parametrize("late", [0, 2])
def test_after_a_halving_every_round_is_reported_with_its_own_times(
    late, small_device, monkeypatch
):
    """A GPU finishes rounds `late` here; the round that ran out of memory is never reported."""
    plain = Stopwatch.latest
    unfinished = late * len(PHASES)
    draft_length = Watched()

    def latest(self: Stopwatch) -> list[list[float]]:
        spans = self._spans
        self._spans = spans[: max(len(spans) - unfinished, 0)]
        found = plain(self)
        self._spans = spans
        return found

    monkeypatch.setattr(Stopwatch, "latest", latest)
    pair = make_pair("llama")
    run = RUN | {"batch_size": 8, "strategy": "inplace", "num_draft_tokens": draft_length}
    with (
        shrinking(pair, small_device),
        pytest.warns(UserWarning, match="out of memory at batch_size="),
    ):
        result = generate(pair, make_prompts(), **run)
    rows = result.rows["round"]
    reported = draft_length.rows
    assert reported == np.bincount(rows)[: len(reported)].tolist()
    assert len(reported) == rows.max() + 1 - late


def test_a_device_without_room_for_a_row(small_device):
    small_device[0] = 0
    message = r"^batch_size=1 is more than cpu can hold \(.*\); lower max_new_tokens"
    with pytest.warns(UserWarning, match="goes on with"), pytest.raises(MemoryError, match=message):
        generate(make_pair("llama"), make_prompts(), **RUN)


def test_an_interrupt_after_memory_ran_out(small_device, monkeypatch):
    small_device[0] = 2
    pair = make_pair("llama")
    whole = generate(pair, make_prompts(), **RUN | {"batch_size": 2})
    Interrupting(60).before(monkeypatch, LlamaForCausalLM, "forward")
    with pytest.warns(UserWarning, match="out of memory"):
        result = generate(pair, make_prompts(), on_interrupt="partial", record=True, **RUN)
    check_partial(result, whole)
    assert 0 < result.status.count("interrupted") < len(whole.tokens)
