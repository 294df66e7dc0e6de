"""A draft head is tried once before a run: those that read their slabs rightly are taken."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import CLASSES, check_refusal, generate, make_pair
from torch import Tensor

from specviz.engine import head_probe
from specviz.engine.head_probe import check_head, find_difference
from specviz.engine.heads import KINDS, DraftHead, build_head
from specviz.engine.heads.modules import HeadLayer

WITH_CACHE = [kind for kind in KINDS if kind != "medusa"]


def make_head(kind: str, name: str = "llama", dtype: torch.dtype = torch.float32) -> DraftHead:
    return build_head(kind, make_pair(name, dtype).target).to(dtype).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", WITH_CACHE)
def test_heads_that_read_their_slabs_rightly_are_taken(kind, name, dtype):
    assert find_difference(make_head(kind, name, dtype)) is None


def test_a_hidden_first_entry_is_no_fault():
    target = make_pair("llama").target
    assert find_difference(build_head("eagle3", target, hides_first=True).eval()) is None


def wrong_positions(forward: Any) -> Any:
    def count_columns(self: Any, states: Tensor, embedded: Any, position_ids: Tensor, **more: Any):
        return forward(self, states, embedded, torch.arange(states.shape[1])[None], **more)

    return count_columns


def wrong_mask(forward: Any) -> Any:
    def see_everything(self: Any, *given: Any, attention_mask: Any = None, **more: Any):
        mask = None if attention_mask is None else torch.zeros_like(attention_mask)
        return forward(self, *given, attention_mask=mask, **more)

    return see_everything


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wrong", [wrong_positions, wrong_mask])
@pytest.mark.parametrize("kind", WITH_CACHE)
def test_heads_that_do_not_are_refused(kind, wrong, dtype, monkeypatch):
    head = make_head(kind, dtype=dtype)
    # An untrained head's attention adds little to its features.
    layer = head.block if kind == "clover" else head.midlayer
    with torch.no_grad():
        for parameter in layer.self_attn.parameters():
            parameter.mul_(20)
    assert find_difference(head) is None
    monkeypatch.setattr(HeadLayer, "forward", wrong(HeadLayer.forward))
    assert "its output differs by " in str(find_difference(head))
    pair = replace(make_pair("llama", dtype), heads={kind: head})
    check_refusal(
        lambda: generate(pair, [[1, 2, 3]], drafter=kind),
        f"the draft head {kind!r} cannot draft in a batch",
        "load it again with load_heads",
    )


def test_a_head_is_tried_once_for_each_dtype(monkeypatch):
    tried = []
    monkeypatch.setattr(head_probe, "find_difference", lambda head: tried.append(head.dtype))
    head = make_head("eagle3")
    for _ in range(2):
        check_head(head)
    check_head(head.to(torch.float64))
    check_head(make_head("medusa"))  # keeps no K/V
    assert tried == [torch.float32, torch.float64]


def test_an_exception_becomes_a_sentence(monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such layer.\nmore")

    monkeypatch.setattr(HeadLayer, "forward", fail)
    assert find_difference(make_head("eagle3")) == (
        "a trial forward raised RuntimeError: no such layer"
    )


def test_a_trial_leaves_the_callers_random_numbers_alone():
    head = make_head("eagle3")
    state = torch.get_rng_state()
    expected = torch.rand(3)
    torch.set_rng_state(state)
    check_head(head)
    assert torch.equal(torch.rand(3), expected)
