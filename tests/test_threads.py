"""A run computes with the number of CPU threads that is faster, and leaves torch's number alone."""

import copy
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import pytest
import torch
from conftest import make_pair

import specviz as sv
from specviz.engine import threads
from specviz.engine.kv.cache import CachedModel
from specviz.engine.options import Options
from specviz.engine.run import make_run
from specviz.engine.threads import RoundForwards, choose_threads, computing_with, on_threads

PROMPTS = [[1, 2, 3], [4, 5]]


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "_choices", WeakKeyDictionary())
    with computing_with(2):
        yield


def work(rows: int = 2) -> RoundForwards:
    pair = make_pair("llama")
    return RoundForwards(pair.target, (pair.draft,), rows=rows, tokens=3)


class Clock:
    """A clock on which a round takes as long as the number of threads says."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.calls = 0

    def __call__(self) -> float:
        return self.now

    def run(self, work: RoundForwards) -> None:
        self.calls += 1
        self.now += self.seconds[torch.get_num_threads()]


@pytest.mark.parametrize(
    ("one", "two", "chosen"),
    [
        (0.010, 0.005, 2),  # faster by far
        (0.010, 0.0095, 1),  # hardly faster
        (0.010, 0.300, 1),  # they wait for each other
        (0.300, 9.0, 2),  # too large to try
    ],
)
def test_the_faster_number_is_chosen(
    one: float, two: float, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock({1: one, 2: two})
    monkeypatch.setattr(RoundForwards, "run", lambda self: clock.run(self))
    assert choose_threads(work(), clock, clock) == chosen
    assert torch.get_num_threads() == 2
    assert clock.now < max(threads.TRIAL_S, one) + 2 * one + two


def test_a_choice_is_kept_for_its_work_and_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock({1: 0.01, 2: 0.1})
    monkeypatch.setattr(RoundForwards, "run", lambda self: clock.run(self))
    now = 0.0
    monkeypatch.setattr(threads.time, "monotonic", lambda: now)
    same = work()
    choose_threads(same, clock, clock)
    tried = clock.calls
    choose_threads(same, clock, clock)
    assert clock.calls == tried
    other = RoundForwards(same.target, same.drafts, rows=5, tokens=3)
    choose_threads(other, clock, clock)
    assert clock.calls > tried
    tried = clock.calls
    now = threads.HOLD_S + 1
    choose_threads(same, clock, clock)
    assert clock.calls > tried


def test_with_one_thread_or_on_a_gpu_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundForwards, "run", lambda self: pytest.fail("tried"))
    with computing_with(1):
        assert choose_threads(work()) == 1
    pair = make_pair("llama")
    elsewhere = RoundForwards(copy.deepcopy(pair.target).to("meta"), (), rows=1, tokens=1)
    assert choose_threads(elsewhere) == 2


def test_the_forwards_of_a_round_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = []
    tried = work()

    def note(model: torch.nn.Module, arguments: tuple[torch.Tensor], *_: object) -> None:
        fed.append((model is tried.target, tuple(arguments[0].shape)))

    hooks = [model.register_forward_pre_hook(note) for model in (tried.target, *tried.drafts)]
    tried.run()
    for hook in hooks:
        hook.remove()
    assert fed == [(True, (2, 3)), (False, (2, 1))]


@pytest.mark.parametrize("ends", ["closed", "done", "raised"])
def test_torch_keeps_its_number_between_events_and_afterwards(ends: str) -> None:
    seen = []

    def items() -> Iterator[int]:
        for i in itertools.count():
            seen.append(torch.get_num_threads())
            if i == 2 and ends == "done":
                return
            if i == 2 and ends == "raised":
                raise RuntimeError("in a phase")
            yield i

    events = on_threads(items(), 1)
    for i in events:
        assert torch.get_num_threads() == 2
        if i == 1:
            break
    if ends == "closed":
        events.close()
    elif ends == "done":
        assert list(events) == []
    else:
        with pytest.raises(RuntimeError, match="in a phase"):
            list(events)
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_run_computes_with_the_number_that_is_given(num_threads: int) -> None:
    pair = make_pair("llama")
    seen = set()
    hook = pair.target.register_forward_pre_hook(lambda *_: seen.add(torch.get_num_threads()))
    given = {"max_new_tokens": 4, "num_threads": num_threads, "progress": False, "record": True}
    result = sv.generate(pair, PROMPTS, **given)
    assert num_threads in seen
    assert result.meta["num_threads"] == num_threads
    assert result.summary["threads"].item() == num_threads
    assert result.trace.meta["num_threads"] == num_threads
    assert torch.get_num_threads() == 2
    seen.clear()
    events = sv.decode(pair, PROMPTS, max_new_tokens=4, num_threads=num_threads)
    assert {torch.get_num_threads() for _ in events} == {2}
    assert num_threads in seen
    hook.remove()


@pytest.mark.parametrize("option", ["deterministic", "compile"])
def test_where_the_number_changes_more_than_the_time_it_is_torchs(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RoundForwards, "run", lambda self: pytest.fail("tried"))
    monkeypatch.setattr(CachedModel, "compile", lambda self, chain_length: None)
    run = make_run(make_pair("llama"), PROMPTS, Options.from_keywords({option: True}))
    assert run.num_threads == 2


@pytest.mark.parametrize("value", [0, -1, 1.5, "two", True])
def test_other_numbers_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="num_threads must be an int >= 1, got"):
        sv.generate(make_pair("llama"), PROMPTS, num_threads=value)


@pytest.mark.parametrize(
    ("before", "set_by_user", "policy"),
    [("", None, "PASSIVE"), ("", "ACTIVE", "ACTIVE"), ("import torch", None, "None")],
)
def test_threads_wait_without_spinning_unless_the_user_decides(
    before: str, set_by_user: str | None, policy: str
) -> None:
    code = f"{before}\nimport os, specviz\nprint(os.environ.get('OMP_WAIT_POLICY'))"
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    if set_by_user is not None:
        environment["OMP_WAIT_POLICY"] = set_by_user
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == policy
