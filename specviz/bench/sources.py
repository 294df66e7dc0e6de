"""Where a benchmark gets its pairs and prompts.

Pairs are stored models, published configurations with random weights, or in memory. A source can
be sent to another process, which then loads what it names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from specviz.costs.shapes import SHAPES, named_pair
from specviz.engine.heads.load import load_heads
from specviz.engine.models.hub import find
from specviz.engine.models.pair import DTYPES, Pair, load_pair
from specviz.engine.models.places import check_places, find_device
from specviz.engine.names import head_folders
from specviz.engine.requests import Prompt, make_requests
from specviz.util.files import is_file
from specviz.util.validate import require_kind, require_path, require_str

DRAWN_TOKENS = 128  # of a random prompt
DRAWN_PROMPTS = 32


@dataclass(frozen=True)
class StoredPair:
    """Models on disk or on the hub, as `load_pair` takes them; without names the embedded pair.

    heads: a folder of draft heads for the target, as `load_heads` takes it.
    """

    target: str | None = None
    draft: str | None = None
    device_map: str | None = None
    heads: str | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None:
                require_path(name, value)

    @property
    def label(self) -> str:
        """A name without the folders of this machine."""
        label = "embedded"
        if self.target is not None and self.draft is not None:
            label = f"{_short_name(self.target)} + {_short_name(self.draft)}"
        return label if self.heads is None else f"{label}, heads of {Path(self.heads).name}"

    def check(self, device: str | None, dtype: str | None) -> None:
        """Raise ValueError or FileNotFoundError if the device or a model is not there."""
        check_places(self.device_map, device)
        if self.target is not None and self.draft is not None:
            find("target", self.target)
            find("draft", self.draft)
        if self.heads is not None:
            head_folders(Path(self.heads))

    def load(self, device: str | None, dtype: str | None) -> Pair:
        pair = load_pair(
            self.target, self.draft, device=device, dtype=dtype, device_map=self.device_map
        )
        return pair if self.heads is None else load_heads(self.heads, pair)


@dataclass(frozen=True)
class ShapePair:
    """A published pair's configurations with random weights and prompts, without a download.

    It shows what a round costs.
    """

    name: str

    def __post_init__(self) -> None:
        named_pair(self.name)  # refuses an unknown name

    @property
    def label(self) -> str:
        return self.name

    def check(self, device: str | None, dtype: str | None) -> None:
        """Raise ValueError if the device is not there."""
        find_device(device)

    def load(self, device: str | None, dtype: str | None) -> Pair:
        """Make the pair on the device, in bfloat16 by default. It has no tokenizer and no EOS."""
        where = find_device(device)
        kind = DTYPES[dtype or "bfloat16"]
        shape = SHAPES[self.name]
        return Pair(*(random_model(shape[role], where, kind) for role in ("target", "draft")))


@dataclass(frozen=True)
class LoadedPair:
    """A pair in memory, on its own device and in its own dtype."""

    pair: Pair
    label: str = "own"

    def __post_init__(self) -> None:
        require_kind("pair", self.pair, Pair, "use specviz.load_pair(), or specviz.Pair")
        require_str("label", self.label)

    def check(self, device: str | None, dtype: str | None) -> None:
        """Raise ValueError for another device or dtype than the pair's."""
        own_device = str(self.pair.device)
        own_dtype = str(self.pair.target.dtype).removeprefix("torch.")
        # "cuda" also names "cuda:0".
        asked = {"device": (device, own_device), "dtype": (dtype, own_dtype)}
        for name, (given, own) in asked.items():
            if given not in (None, own, own.partition(":")[0]):
                raise ValueError(
                    f"{name}={given!r} is not that of the pair, which is in memory in {own}; "
                    f"leave {name}s out"
                )

    def load(self, device: str | None, dtype: str | None) -> Pair:
        return self.pair


PairSource = StoredPair | ShapePair | LoadedPair


def random_model(
    config: Mapping[str, Any], device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """Return a causal LM of this configuration, `model_type` included, with random weights.

    With plain random weights the two best logits are closer than bfloat16 can tell apart, so that
    no text could be compared. Here the embedding is as large as what the layers add to it, and a
    separate output embedding is the same table shifted by one: after a token comes the next id, or
    the same id with tied embeddings, by a clear margin. What a forward costs does not depend on
    that. A mistake in attention would hardly change such a text, so other models test equality.
    """
    settings = AutoConfig.for_model(
        **config, bos_token_id=None, eos_token_id=None, pad_token_id=None
    )
    gpus = [device] if device.type == "cuda" else []
    with torch.device(device), torch.random.fork_rng(devices=gpus), torch.no_grad():
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(settings, dtype=dtype)
        table = model.get_input_embeddings().weight
        head = model.get_output_embeddings().weight
        table.normal_(0, settings.num_hidden_layers**0.5)
        if head is not table:
            head.copy_(table.roll(1, 0))
    model.generation_config.eos_token_id = None  # some configurations replace None by their own
    return model


def prompt_ids(
    source: PairSource, pair: Pair, prompts: Sequence[Prompt], count: int | None, tokens: int | None
) -> list[list[int]]:
    """Return `count` prompts as token ids, each cut to its last `tokens`.

    After all prompts come their first halves, then their first quarters and so on. Those of a
    `ShapePair` are random: `count` (None: DRAWN_PROMPTS) of `tokens` (None: DRAWN_TOKENS) ids.

    Raises:
        ValueError: as `generate` for prompts that it cannot decode.
    """
    if isinstance(source, ShapePair):
        shape = (count or DRAWN_PROMPTS, tokens or DRAWN_TOKENS)
        generator = torch.Generator().manual_seed(0)
        return torch.randint(0, pair.vocabulary_size, shape, generator=generator).tolist()
    ids = [list(request.prompt) for request in make_requests(pair, prompts, 1, 0)]
    found = []
    for i in range(len(ids) if count is None else count):
        prompt = ids[i % len(ids)]
        halvings = i // len(ids)
        prompt = prompt[: max(1, len(prompt) >> halvings)]
        found.append(prompt if tokens is None else prompt[-tokens:])
    return found


def _short_name(name: str) -> str:
    return Path(name).name if is_file(Path(name) / "config.json") else name
