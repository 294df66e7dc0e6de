"""The runs whose records are made wrong by the mutations: `KINDS` are 23 kinds of them."""

import functools
from typing import Any

import published
import tiny_models
from conftest import make_pair, make_prompts
from families import perturbed

import specviz as sv
from specviz.engine.draft_length import DraftLength
from specviz.engine.state import State
from specviz.record.trace import Trace

K = 3
GUMBEL = sv.SamplingParams(0.8, top_k=20, coupling="gumbel")
REJECTION = sv.SamplingParams(1.0, coupling="rejection")
SYNTHETIC = sv.drafter("synthetic", rates=(0.9, 0.8, 0.5))
PLAIN = {"ones_mask": False, "draft_bonus": False}
POOL = {"window": 5, "fallback": "wait", "max_wait": 2}
SAFE = sv.selector("tetris", extra=1, score="largest", max_wait=2)
UNSURE = sv.selector("threshold", at_least=0.3)
TREE = sv.drafter("tree", depth=3)
PADDED = {"as_published": True, "window": 5}


class Cycling(DraftLength):
    """K is 0, 1, 2, 3, 0, ... from round to round."""

    name = "cycling"

    def choose(self, state: State) -> int:
        return state.round % (self.most + 1)


# strategy, its options, options of the run
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "autoregressive": ("autoregressive", {}, {}),
    "rollback": ("rollback", {"refill": False}, {}),
    "masking": ("masking", {}, {}),
    "eqspec": ("eqspec", {}, {"max_new_tokens": [1, 9, 10, 6, 8]}),
    "exspec": ("exspec", POOL, {"batch_size": 2}),
    "exspec, realigned": ("exspec", {"window": 4}, {"batch_size": 2, "sampling": GUMBEL}),
    "inplace": ("inplace", {}, {"num_draft_tokens": Cycling(K)}),
    "gumbel": ("inplace", {}, {"sampling": GUMBEL}),
    "rejection": ("eqspec", {}, {"sampling": REJECTION, "batch_size": 4}),
    "lookup": ("inplace", {}, {"drafter": "lookup"}),
    "lookup, gumbel": ("eqspec", {}, {"drafter": "lookup", "sampling": GUMBEL}),
    "repadding": ("repadding", PLAIN, {"drafter": SYNTHETIC}),
    "published": ("eqspec", {"as_published": True}, {}),
    "published pool": ("exspec", PADDED, {"batch_size": 2}),
    "tetris": ("inplace", {}, {"selector": sv.selector("tetris"), "num_draft_tokens": 2}),
    "tetris, rejection": ("eqspec", {}, {"selector": SAFE, "sampling": REJECTION}),
    "tree": ("inplace", {}, {"drafter": TREE, "num_draft_tokens": 5}),
    "tree, gumbel": ("eqspec", {}, {"drafter": TREE, "num_draft_tokens": 5, "sampling": GUMBEL}),
    "static tree": ("masking", {}, {"drafter": "static_tree", "num_draft_tokens": 6}),
    "threshold": ("exspec", POOL, {"selector": UNSURE, "sampling": GUMBEL, "batch_size": 2}),
    "states": ("exspec", POOL | {"window": 3}, {"batch_size": 2}),  # prompts enter late
    "windows": ("eqspec", {}, {}),
    "windows, holes": ("masking", {}, {}),
}
# Those of other models than Llama's.
FAMILIES = {"states": "qwen3_next", "windows": "gemma3_text", "windows, holes": "gemma3_text"}


@functools.cache
def pair_of(kind: str) -> sv.Pair:
    """Return the pair of a kind of run."""
    if kind not in FAMILIES:
        return make_pair("llama")
    config = tiny_models.make_config(tiny_models.families()[FAMILIES[kind]])
    target = tiny_models.build(FAMILIES[kind], config, "sdpa")
    return sv.Pair(target, perturbed(target))


@functools.cache
def record(kind: str) -> Trace:
    """Return the record of a run of this kind; a process makes each once."""
    name, options, run = KINDS[kind]
    usual = {"batch_size": 3, "num_draft_tokens": K, "max_new_tokens": 10}
    prompts = make_prompts()
    result = sv.generate(
        pair_of(kind),
        [prompts[i] for i in (4, 1, 2, 0, 5)],  # 12, 2, 7, 1 and 3 tokens
        strategy=published.strategy(name, **options),
        record=True,
        progress=False,
        **usual | run,
    )
    assert result.trace is not None
    return result.trace
