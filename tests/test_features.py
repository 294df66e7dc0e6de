"""The target's hidden states of committed tokens, as drafters read them."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from conftest import CLASSES, make_pair

import specviz as sv
from specviz.engine.drafters.chains import ModelDrafter
from specviz.engine.drafters.trees import TreeDrafter
from specviz.engine.features import Features
from specviz.engine.models.pair import Pair
from specviz.engine.state import State

RUNS = [
    ("inplace", {}),
    ("inplace", {"refill": False}),
    ("eqspec", {}),
    ("eqspec", {"refill": False}),
    ("rollback", {}),
    ("masking", {}),
    ("repadding", {"ones_mask": False, "draft_bonus": False}),
    ("exspec", {"window": 6}),
    ("exspec", {"window": 6, "fallback": "partial"}),
    ("exspec", {"window": 8, "fallback": "wait", "max_wait": 2, "sort_prompts": True}),
]


def wanted(pair: Pair) -> Features:
    """Ask for the output of the first layer and that of the final norm, side by side."""
    size = pair.target.config.get_text_config().hidden_size
    return Features(2 * size, lambda states: torch.cat([states[1], states[-1]], -1))


@dataclass(frozen=True)
class Reading(ModelDrafter):
    """Keep features beside a draft model."""

    name: ClassVar[str] = "reading"

    def features(self, pair: Pair) -> Features:
        return wanted(pair)


@dataclass(frozen=True)
class ReadingTree(TreeDrafter):
    """The same beside a draft model that grows trees."""

    name: ClassVar[str] = "reading_tree"

    def features(self, pair: Pair) -> Features:
        return wanted(pair)


@functools.cache
def features_of(name: str, tokens: tuple[int, ...]) -> torch.Tensor:
    """Return the features (n, F) of a fresh forward of the target over `tokens`."""
    pair = make_pair(name)
    with torch.inference_mode():
        output = pair.target.base_model(torch.tensor([tokens]), output_hidden_states=True)
        return wanted(pair).select(output.hidden_states)[0]


def check_features(name: str, state: State) -> Iterator[str]:
    """Compare the features of every live row, parked ones too. Yield the kind of each row."""
    assert state.features is not None
    for i, row in enumerate(state.batch.live):
        tokens = [*row.request.prompt, *row.output]
        known = len(tokens) - 1  # the pending token has not been read yet
        index = torch.tensor([[0, known]])
        before = state.features.before(torch.tensor([i]), index)[0]
        assert (before[0] == 0).all(), "nothing comes before the first token"
        if known == 0:
            yield "alone"
            continue
        expected = features_of(name, tuple(tokens[:-1]))
        torch.testing.assert_close(state.features.values[i, :known], expected, atol=1e-4, rtol=0)
        assert torch.equal(before[1], state.features.values[i, known - 1])
        yield "idle" if row.finished else "decoding" if row.output else "fresh"


@pytest.mark.sweep(6)
@pytest.mark.parametrize("number", range(len(RUNS)))
def test_features_are_those_of_the_rows_committed_tokens(number, prompts):
    """In every round and row, compared with a fresh forward of the row's text.

    Twelve more prompts with budgets of two tokens make rows come and go. One-token prompts among
    them take rows that others had.
    """
    strategy, options = RUNS[number]
    name = list(CLASSES)[number % len(CLASSES)]
    more = [[i] for i in range(60, 66)] + [[i, i] for i in range(70, 76)]
    budgets = [12] * len(prompts) + [2] * len(more)
    seen = set()
    run = {"strategy": sv.strategy(strategy, **options), "batch_size": 4, "num_draft_tokens": 3}
    events = sv.decode(
        make_pair(name), prompts + more, drafter=Reading(), max_new_tokens=budgets, **run
    )
    for event in events:
        if event.phase in ("schedule", "accept"):
            seen |= set(check_features(name, event.state))
    assert seen >= {"alone", "fresh", "decoding", "idle"}


TREES = {"drafter": ReadingTree(), "batch_size": 3, "num_draft_tokens": 6}
OTHERS = {
    "trees": TREES | {"strategy": "inplace"},
    "trees in masking": TREES | {"strategy": "masking"},
    "trees in exspec": TREES | {"strategy": "exspec"},
    "a selection": {"drafter": Reading(), "selector": "tetris", "batch_size": 4},
    "fixed shapes": {"drafter": Reading(), "deterministic": True},
}


@pytest.mark.parametrize("name", OTHERS)
def test_features_are_those_of_the_branch_and_of_what_was_verified(name, prompts):
    seen = set()
    accepted = 0
    for event in sv.decode(make_pair("llama"), prompts, max_new_tokens=12, **OTHERS[name]):
        if event.phase == "accept":
            seen |= set(check_features("llama", event.state))
            accepted += sum(row.accepted for row in event.state.batch.rows)
    assert "decoding" in seen
    assert accepted > 0


def test_features_are_kept_only_on_request(pair):
    for event in sv.decode(pair, [[1, 2]], max_new_tokens=2):
        assert event.state.features is None


def test_nonfinite_features_do_not_reach_the_next_request(pair):
    for event in sv.decode(pair, [[1, 2], [3, 4]], drafter=Reading(), max_new_tokens=4):
        state = event.state
        assert state.features is not None
        with torch.inference_mode():
            state.features.values[0, -1] = torch.nan
            state.zero_nonfinite([0])
        assert torch.isfinite(state.features.values).all()
        break
