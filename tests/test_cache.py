"""Cached K/V after every round against a fresh prefill of the same tokens, for both models."""

import pytest
import torch
from conftest import CLASSES, make_pair
from transformers import DynamicCache

import specviz as sv
from specviz.engine.events import Event
from specviz.engine.state import State


def fresh_prefill(
    model: torch.nn.Module, tokens: list[int]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values (T, H, D) of each layer, from one forward over `tokens`."""
    cache = DynamicCache()
    model(torch.tensor([tokens]), past_key_values=cache, use_cache=True)
    return [
        (layer.keys[0].transpose(0, 1), layer.values[0].transpose(0, 1)) for layer in cache.layers
    ]


def check_against_prefill(event: Event, pair: sv.Pair) -> int:
    """Compare every live row; returns how many rows were compared."""
    state = event.state
    for i, row in enumerate(state.batch.rows):
        if row.finished:
            continue
        tokens = [*row.request.prompt, *row.output]
        for name, model, missing in (("target", pair.target, 1), ("draft", pair.draft, 2)):
            known = len(tokens) - missing
            if known < 1:
                continue
            held = slice(state.layout.starts[i], state.layout.starts[i] + known)
            for layer, expected in zip(
                state.caches[name].cache.layers, fresh_prefill(model, tokens[:known]), strict=True
            ):
                for slab, fresh in zip((layer.keys, layer.values), expected, strict=True):
                    torch.testing.assert_close(slab[i, held], fresh, rtol=1e-10, atol=1e-10)
    return sum(not row.finished for row in state.batch.rows)


@pytest.mark.sweep(10)
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("strategy", ["eqspec", "inplace"])
def test_cache_content_equals_a_fresh_prefill(strategy, name, prompts):
    pair = make_pair(name, torch.float64)
    compared = 0
    for event in sv.decode(
        pair, prompts[:6], strategy=strategy, batch_size=3, num_draft_tokens=4, max_new_tokens=10
    ):
        if event.phase == "synchronise":
            compared += check_against_prefill(event, pair)
    assert compared > 10


@pytest.mark.parametrize("whole_slabs", [False, True], ids=["used window", "whole slabs"])
def test_attention_reads_the_used_window_alone(whole_slabs, monkeypatch):
    """Fill the slots beyond the window with NaN after each round.

    A mask does not keep NaN out of attention; not reading those slots does.
    """
    pair, prompts, K = make_pair("llama"), [[3, 5, 8, 13, 21]] * 2, 3
    asked = {"num_draft_tokens": K, "batch_size": 2, "max_new_tokens": 12}
    expected = sv.generate(pair, prompts, progress=False, **asked).tokens
    if whole_slabs:
        monkeypatch.setattr(State, "window", property(lambda state: state.caches["target"].slots))
    written = [[], []]
    for event in sv.decode(pair, prompts, **asked):
        if event.phase == "accept":
            written = [list(row.output) for row in event.state.batch.rows]
        if event.phase == "synchronise":
            end = event.state.batch.rows[0].length + K
            for layer in (
                layer for cache in event.state.caches.values() for layer in cache.cache.layers
            ):
                with torch.inference_mode():
                    layer.keys[:, end:], layer.values[:, end:] = torch.nan, torch.nan
    assert (written == expected) is not whole_slabs
