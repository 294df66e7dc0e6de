"""What verification takes where layers keep states: K + 1 tokens against one, by family and way.

Models are tiny and random, so times are mostly those of the host: what the loops of each way cost
beside the layers. The forwards of all ways are timed in turns. Bytes are those of one row in one
layer of the family's default configuration, in bfloat16, for K = 4: what a layer of state keeps of
the row, and what an attending layer keeps of each token.
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import pandas as pd
import torch
import transformers
from measure import FIGURES, Measured, command, interleaved, measured_on
from transformers import AutoModelForCausalLM, PreTrainedModel

import specviz as sv
from specviz.engine.kv import states
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed

sys.path.append(str(FIGURES.parent / "tests"))

from tiny_models import build, families, make_config

FAMILIES = (
    *("llama", "gemma3_text", "lfm2", "zaya", "minimax", "zamba"),
    *("qwen3_next", "qwen3_5_text", "olmo_hybrid", "kimi_linear", "bailing_hybrid"),
    *("nemotron_h", "granitemoehybrid", "bamba", "falcon_h1", "zamba2", "jamba"),
)
# Their default configuration has no layer of state.
CHANGES: dict[str, dict[str, Any]] = {"lfm2": {"layer_types": ["conv", "full_attention"] * 16}}
ROWS, K, PROMPT, TURNS, GAINED = 4, 4, 24, 40, 3
# How K + 1 tokens are read: by layers that keep K/V alone; by the whole mixer token by token; by a
# convolution, all at once; by the rule token by token, with a state kept for each; and so with the
# rule's inputs kept.
ATTENTION, CONVOLUTION, RECURRENCE = ["K/V"], ["mixer", "convolution"], ["mixer", "rule", "inputs"]


class Reader:
    """A model that reads K + 1 tokens of each row, or one, in one of the ways."""

    def __init__(self, model: PreTrainedModel, way: str, tokens: int) -> None:
        self.tokens = tokens
        self.model = model
        self.slots = PROMPT + (TURNS + 4) * GAINED + K + 1
        state = "inputs" if way == "inputs" else "states"
        self.cached = CachedModel(model, ROWS, self.slots, columns=K, state=state)
        if way == "mixer":
            for layer in self.cached.cache.state_layers:
                layer.at_once = False
        self.read = 0
        self.cached.prefill(self.feed(PROMPT))
        self.read = PROMPT

    def feed(self, tokens: int) -> Feed:
        device = self.model.device
        indices = (self.read + torch.arange(tokens, device=device)).expand(ROWS, tokens)
        visible = torch.arange(self.slots, device=device) <= indices[:, :, None]
        return Feed(
            rows=torch.arange(ROWS, device=device),
            requests=list(range(ROWS)),
            tokens=indices % 80 + 9,
            indices=indices,
            positions=indices,
            slots=indices,
            visible=visible,
            valid=torch.ones_like(indices, dtype=torch.bool),
        )

    def verify(self) -> None:
        """Read the tokens; some of them are then read again."""
        self.cached.forward(self.feed(self.tokens))
        self.read += min(GAINED, self.tokens)


@torch.inference_mode()
def times_of(model: PreTrainedModel) -> Iterator[dict[str, object]]:
    """Yield one line for each way of a model: K + 1 tokens beside one."""
    layers = Reader(model, "rule", 1).cached.cache.state_layers
    if not layers:
        ways = ATTENTION
    elif not any(layer.at_once for layer in layers):
        ways = ["mixer"]
    else:
        has_rule = any(states.RECURRENCE in layer.rings for layer in layers)
        ways = RECURRENCE if has_rule else CONVOLUTION
    readers = {"one token": Reader(model, ways[0], 1)}
    readers |= {way: Reader(model, way, K + 1) for way in ways}
    verifying = {way: reader.verify for way, reader in readers.items()}
    seconds = interleaved(verifying, TURNS, model.device)
    one, *others = (1e3 * median(seconds[way]) for way in readers)
    for way, ms in zip(ways, others, strict=True):
        yield {"way": way, "one_ms": one, "verify_ms": ms, "ratio": ms / one}


@torch.inference_mode()
def bytes_of(family: str, way: str) -> dict[str, float]:
    """Return what a row takes in one layer of each kind, of the default configuration's widths."""
    config = families()[family](**CHANGES.get(family, {}))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    cached = CachedModel(model, 1, 1, columns=K, state="inputs" if way == "inputs" else "states")
    for tokens in 1, 2:  # what is kept is allocated as it is first read
        places = torch.arange(tokens)[None]
        ids = places.to("meta")
        seen = torch.ones(1, tokens, 1, dtype=torch.bool, device="meta")
        cached.forward(Feed(places[:, 0], [0], ids, places, ids, 0 * places, seen, ids == 0))
    layers = cached.cache.state_layers
    rings = [ring for layer in layers for ring in (*layer.rings.values(), *layer.inputs)]
    attending = [layer for layer in cached.cache.layers if getattr(layer, "slabs", None)]
    return {
        "state_bytes": sum(ring.held.nbytes for ring in rings) / max(len(layers), 1),
        "slot_bytes": cached.bytes_per_slot / max(len(attending), 1),
    }


def states_cost(names: Sequence[str] = FAMILIES) -> Measured:
    """Return a line for each family and way."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    lines = []
    for family in names:
        model = build(family, make_config(families()[family]), "sdpa")
        for line in times_of(model):
            lines.append({"family": family, **line, **bytes_of(family, line["way"])})
    about = measured_on(sv.load_pair(device="cpu"), rows=ROWS, num_draft_tokens=K, turns=TURNS)
    return pd.DataFrame(lines), about


if __name__ == "__main__":
    command(states_cost, {"states": {}}, {"names": ("llama", "qwen3_next")})
