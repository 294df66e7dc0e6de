"""A run computes with one CPU thread for a small model, and leaves torch's number alone."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from conftest import make_pair

import specviz as sv
from specviz.engine.threads import SMALL, choose_threads, computing_with

PROMPTS = [[1, 2, 3], [4, 5]]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    with computing_with(2):
        yield


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("size", [SMALL - 1, SMALL])
def test_small_models_on_a_cpu_take_one_thread(size: int, device: str) -> None:
    model = torch.nn.Linear(size, 1, bias=False, device="meta")
    model.device = torch.device(device)
    assert choose_threads(model) == (1 if device == "cpu" and size < SMALL else 2)


@pytest.mark.parametrize("ends", ["closed", "done", "raised"])
def test_torch_keeps_its_number_between_events_and_afterwards(ends: str) -> None:
    pair = make_pair("llama")
    seen = set()

    def note(*_: object) -> None:
        seen.add(torch.get_num_threads())
        if ends == "raised" and len(events_seen) > 6:
            raise RuntimeError("in a phase")

    events_seen: list[object] = []
    hook = pair.target.register_forward_pre_hook(note)
    events = sv.decode(pair, PROMPTS, max_new_tokens=8, num_threads=1)
    seen.clear()  # the trial of the model
    try:
        for event in events:
            events_seen.append(event)
            assert torch.get_num_threads() == 2
            if ends == "closed" and len(events_seen) == 6:
                break
    except RuntimeError:
        assert ends == "raised"
    finally:
        hook.remove()
    if ends == "closed":
        events.close()
    assert seen == {1}
    assert torch.get_num_threads() == 2


@pytest.mark.sweep(3)
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


@pytest.mark.parametrize("value", [0, -1, 1.5, "two", True])
def test_other_numbers_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="num_threads must be an int >= 1, got"):
        sv.generate(make_pair("llama"), PROMPTS, num_threads=value)


@pytest.mark.sweep(3)
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
