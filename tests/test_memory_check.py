"""A run that cannot fit is refused before any model runs; the error names the largest batch."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import generate, make_pair, make_prompts
from test_numbers import VALID
from transformers import LlamaModel

import specviz as sv
from specviz.engine.heads import build_head
from specviz.generation import memory

RUN = {"max_new_tokens": 24, "num_draft_tokens": 4}
PROMPTS = make_prompts() * 20


def refused(
    monkeypatch: pytest.MonkeyPatch, room: float, batch_size: int, **options: object
) -> str:
    with monkeypatch.context() as patch:
        patch.setattr(memory, "available_bytes", lambda device: int(room))
        patch.setattr(LlamaModel, "forward", lambda *_, **__: pytest.fail("a forward has run"))
        with pytest.raises(ValueError, match="needs") as caught:
            generate(make_pair("llama"), PROMPTS, batch_size=batch_size, **RUN | options)
    return str(caught.value)


@pytest.mark.parametrize("name", [name for name in VALID if name != "exspec"])
def test_the_largest_batch_that_fits_is_named_and_runs(name, monkeypatch):
    strategy, room = sv.strategy(name), 8e6
    begin, _, most = refused(monkeypatch, room, 160, strategy=strategy).rpartition(
        "pass batch_size="
    )
    assert begin.startswith("batch_size=160 needs 0.0")
    assert " GB, and cpu has 0.008 GB; " in begin
    largest = int(most.removesuffix(" or less"))
    assert 1 <= largest < 160
    assert f"pass batch_size={largest} or less" in refused(
        monkeypatch, room, largest + 1, strategy=strategy
    )
    monkeypatch.setattr(memory, "available_bytes", lambda device: int(room))
    run = RUN | {"max_new_tokens": [1] * 199 + [24], "batch_size": largest}
    assert len(generate(make_pair("llama"), PROMPTS, strategy=strategy, **run).tokens) == 200


def test_memory_for_no_row_at_all(monkeypatch):
    message = refused(monkeypatch, 1e5, 1)
    assert message.endswith("; not even one row fits: lower max_new_tokens, or shorten the prompts")


def test_rows_count_only_as_far_as_there_are_prompts(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: int(8e6))
    assert len(generate(make_pair("llama"), PROMPTS[:2], batch_size=10**6, **RUN).tokens) == 2


def test_what_is_available():
    """It is all the memory of the container or machine; on an unknown device nothing is refused."""
    total = memory.available_bytes(torch.device("cpu"))
    assert total is not None
    kilobytes = int(Path("/proc/meminfo").read_text().split()[1])
    assert 2**28 < total <= 1024 * kilobytes
    assert memory.available_bytes(torch.device("meta")) is None


@pytest.mark.gpu
def test_what_is_available_on_a_gpu():
    device = torch.device("cuda:0")
    held = torch.zeros(2**28, dtype=torch.uint8, device=device)
    found = memory.available_bytes(device)
    assert held.numel() < found <= torch.cuda.get_device_properties(device).total_memory


def test_a_head_counts(monkeypatch):
    """Its parameters, its K/V and the features; a head without K/V leaves room for more rows."""
    target = make_pair("llama")
    heads = {kind: build_head(kind, target.target).eval() for kind in ("eagle3", "medusa")}
    monkeypatch.setattr("test_memory_check.make_pair", lambda name: replace(target, heads=heads))
    found = {}
    for drafter in ("lookup", "medusa", "eagle3", sv.drafter("tree", base="eagle3", depth=4)):
        message = refused(monkeypatch, 8e6, 199, drafter=drafter)
        assert message.startswith("batch_size=199 needs 0.0")
        largest = int(message.rpartition("batch_size=")[2].removesuffix(" or less"))
        found[drafter if isinstance(drafter, str) else "tree"] = largest
    assert found["lookup"] > found["medusa"] > found["eagle3"] >= found["tree"] >= 1
    monkeypatch.setattr(memory, "available_bytes", lambda device: int(8e6))
    run = RUN | {"max_new_tokens": [1] * 199 + [24], "batch_size": found["eagle3"]}
    result = generate(replace(target, heads=heads), PROMPTS, drafter="eagle3", **run)
    assert len(result.tokens) == 200


def test_the_slots_of_a_wide_tree_count(monkeypatch):
    """Its draft model writes 8 x 7 columns a row, of which 8 drafts are verified."""

    def largest(**options: object) -> int:
        message = refused(monkeypatch, 8e6, 200, num_draft_tokens=8, **options)
        return int(message.rpartition("batch_size=")[2].removesuffix(" or less"))

    wide = sv.drafter("tree", depth=8, width=8)
    assert largest(drafter=wide) < largest(drafter="model")
