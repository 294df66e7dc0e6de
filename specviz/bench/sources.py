"""Where a benchmark gets its pairs and prompts: stored models, real configurations with random weights, or a pair that is in memory.

A source can be sent to another process, which then loads what it names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from specviz.costs.shapes import SHAPES, named_pair
from specviz.engine.models.pair import DTYPES, Pair, find_device, load_pair
from specviz.engine.requests import Prompt, make_requests

DRAWN = 128  # tokens of a drawn prompt, unless told otherwise


@dataclass(frozen=True)
class StoredPair:
    """Models on disk or on the hub, as `load_pair` takes them; no names: the embedded pair."""

    target: str | None = None
    draft: str | None = None
    device_map: str | None = None

    @property
    def label(self) -> str:
        """A name without the folders of this machine."""
        return (
            "embedded"
            if self.target is None or self.draft is None
            else f"{_named(self.target)} + {_named(self.draft)}"
        )

    def check(self, device: str | None, dtype: str | None) -> None:
        """Raises ValueError if the device is not there."""
        find_device(device)

    def load(self, device: str | None, dtype: str | None) -> Pair:
        return load_pair(
            self.target, self.draft, device=device, dtype=dtype, device_map=self.device_map
        )


@dataclass(frozen=True)
class ShapePair:
    """A published pair's configurations with random weights: what a round costs, without a download. Its prompts are drawn."""

    name: str

    def __post_init__(self) -> None:
        named_pair(self.name)  # raises for an unknown name

    @property
    def label(self) -> str:
        return self.name

    def check(self, device: str | None, dtype: str | None) -> None:
        """Raises ValueError if the device is not there."""
        find_device(device)

    def load(self, device: str | None, dtype: str | None) -> Pair:
        return build_shape_pair(self.name, device, dtype)


@dataclass(frozen=True)
class LoadedPair:
    """A pair that is in memory, where it is and as it is."""

    pair: Pair
    label: str = "own"

    def check(self, device: str | None, dtype: str | None) -> None:
        """Raises ValueError if another device or dtype than the pair's is asked for."""
        there = {
            "device": str(self.pair.device),
            "dtype": str(self.pair.target.dtype).removeprefix("torch."),
        }
        for name, asked in (("device", device), ("dtype", dtype)):
            if asked not in (
                None,
                there[name],
                there[name].partition(":")[0],
            ):  # "cuda" is "cuda:0", too
                raise ValueError(
                    f"{name}={asked!r} is not that of the pair, which is in memory in {there[name]}; leave {name}s out"
                )

    def load(self, device: str | None, dtype: str | None) -> Pair:
        return self.pair


PairSource = StoredPair | ShapePair | LoadedPair


def build_shape_pair(name: str, device: str | None = None, dtype: str | None = None) -> Pair:
    """The pair `SHAPES[name]` with random weights, made on the device in the dtype (None: bfloat16). It has no tokenizer and no EOS.

    See `random_model` for what it writes.

    Raises:
        ValueError: the name, the device or the dtype is unknown.
    """
    named_pair(name)
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is unknown; choose one of {', '.join(DTYPES)}")
    where, kind = find_device(device), DTYPES[dtype or "bfloat16"]
    return Pair(*(random_model(SHAPES[name][role], where, kind) for role in ("target", "draft")))


def random_model(
    config: Mapping[str, Any], device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """A causal LM of this configuration, `model_type` included, with random weights.

    With plain random weights the two best logits lie closer to each other than bfloat16 can tell, so that no text could be compared.
    So the embedding is as loud as what the layers add to it, and the output embedding, if it is one of its own, is the same table moved on
    by one: after a token comes the next id (with tied embeddings the same id), by a wide margin. What a forward costs does not
    depend on that. But a mistake in attention could hardly change such a text: that equality is tested with other models.
    """
    settings = AutoConfig.for_model(
        **config, bos_token_id=None, eos_token_id=None, pad_token_id=None
    )
    with (
        torch.device(device),
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        torch.no_grad(),
    ):
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(settings, dtype=dtype)
        table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        table.normal_(0, settings.num_hidden_layers**0.5)
        if head is not table:
            head.copy_(table.roll(1, 0))
    model.generation_config.eos_token_id = None  # some configurations put their own in None's place
    return model


def prompt_ids(
    source: PairSource, pair: Pair, prompts: Sequence[Prompt], count: int | None, tokens: int | None
) -> list[list[int]]:
    """The prompts as token ids, `count` of them, each cut to its last `tokens`.

    Beyond the prompts that there are come their first halves, then their first quarters and so on. Those of a `ShapePair` are drawn: `count`
    (None: 32) prompts of `tokens` (None: DRAWN) ids.

    Raises:
        ValueError: as `generate` for prompts that it cannot decode.
    """
    if isinstance(source, ShapePair):
        generator = torch.Generator().manual_seed(0)
        return torch.randint(
            0, pair.vocabulary_size, (count or 32, tokens or DRAWN), generator=generator
        ).tolist()
    ids = [list(request.prompt) for request in make_requests(pair, prompts, 1, 0)]
    counted = range(len(ids) if count is None else count)
    chosen = [ids[i % len(ids)][: max(1, len(ids[i % len(ids)]) >> i // len(ids))] for i in counted]
    return [prompt if tokens is None else prompt[-tokens:] for prompt in chosen]


def _named(name: str) -> str:
    return Path(name).name if Path(name).exists() else name
