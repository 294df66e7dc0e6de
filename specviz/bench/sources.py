"""What a benchmark compares and runs on: baselines of transformers, pairs, and prompts.

Baselines go from the ids of prompts to the ids that they write, and use nothing of the loop. Pairs
are stored models, published configurations with random weights, or in memory. A source of pairs can
be sent to another process, which then loads what it names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from specviz.bench.interleave import Steps
from specviz.costs.shapes import SHAPES, named_pair
from specviz.engine.models.pair import DTYPES, Pair, find_device, load_heads, load_pair
from specviz.engine.requests import Prompt, make_requests
from specviz.util.files import is_file
from specviz.util.validate import is_share, short

Prompts = Sequence[Sequence[int]]
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

    @property
    def label(self) -> str:
        """A name without the folders of this machine."""
        names = [
            Path(name).name if is_file(Path(name) / "config.json") else name
            for name in (self.target, self.draft)
            if name is not None
        ]
        label = " + ".join(names) or "embedded"
        return label if self.heads is None else f"{label}, heads of {Path(self.heads).name}"

    def load(self, device: str | None, dtype: str | None) -> Pair:
        pair = load_pair(
            self.target, self.draft, device=device, dtype=dtype, device_map=self.device_map
        )
        return pair if self.heads is None else load_heads(self.heads, pair)


@dataclass(frozen=True)
class ShapePair:
    """A published pair's configurations with random weights: what a round costs, no download."""

    label: str

    def __post_init__(self) -> None:
        named_pair(self.label)  # refuses an unknown name

    def load(self, device: str | None, dtype: str | None) -> Pair:
        """Make the pair on the device, in bfloat16 by default. It has no tokenizer and no EOS."""
        where = find_device(device)
        kind = DTYPES[dtype or "bfloat16"]
        shape = SHAPES[self.label]
        return Pair(*(random_model(shape[role], where, kind) for role in ("target", "draft")))


@dataclass(frozen=True)
class LoadedPair:
    """A pair in memory, on its own device and in its own dtype."""

    pair: Pair
    label: str = "own"

    def load(self, device: str | None, dtype: str | None) -> Pair:
        """Return the pair. Raise ValueError for another device or dtype than its own."""
        own_dtype = str(self.pair.target.dtype).removeprefix("torch.")
        asked = [("device", device, str(self.pair.device)), ("dtype", dtype, own_dtype)]
        for name, given, own in asked:
            if given not in (None, own, own.partition(":")[0]):  # "cuda" also names "cuda:0"
                raise ValueError(
                    f"{name}={given!r} is not that of the pair, which is in memory in {own}; "
                    f"leave {name}s out"
                )
        return self.pair


PairSource = StoredPair | ShapePair | LoadedPair


def random_model(
    config: Mapping[str, Any], device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """Return a causal LM of this configuration, `model_type` included, with random weights.

    With plain random weights the two best logits are closer than bfloat16 can tell apart. Here the
    embedding is as large as what the layers add to it, and a separate output embedding is the same
    table shifted by one: after a token comes the next id, or the same id with tied embeddings, by a
    clear margin. A mistake in attention would hardly change such a text.
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


@dataclass(frozen=True)
class Written:
    """What a baseline wrote.

    Attributes:
        tokens: the new ones of each prompt, up to and with EOS.
        forwards: of the target.
        row_forwards: the same, counted once for each row that took part.
    """

    tokens: list[list[int]]
    forwards: int
    row_forwards: int


@dataclass(frozen=True)
class Baseline:
    """A way to decode that is not a strategy of specviz. Subclass it and pass an object to `Grid`.

    Attributes:
        name: in tables.
        drafts: whether it uses K.
        alone: whether it decodes at batch 1 only.
        on_torch: whether it computes with torch, so that its memory can be watched.
    """

    name: ClassVar[str] = ""
    drafts: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    on_torch: ClassVar[bool] = True

    @property
    def options(self) -> dict[str, object]:
        """The options that it was made with, by name."""
        return asdict(self)

    def capacity(self, batch_size: int, prompts: int) -> int:
        """Return how many requests it has begun and not ended, at most."""
        return min(1 if self.alone else batch_size, prompts)

    def prepare(self, pair: Pair) -> None:
        """Load what decoding with the pair needs. This is not timed.

        Raises:
            ImportError, ValueError: it cannot decode with the pair on this machine.
        """

    def decode(
        self, pair: Pair, batch: Prompts, max_new_tokens: int, num_draft_tokens: int
    ) -> Written:
        """Decode one batch."""
        raise NotImplementedError

    def write(
        self,
        pair: Pair,
        prompts: Prompts,
        batch_size: int,
        max_new_tokens: int,
        num_draft_tokens: int,
    ) -> Steps[Written]:
        """Decode the prompts in order; yield the number of tokens so far after each batch."""
        tokens: list[list[int]] = []
        forwards = 0
        row_forwards = 0
        for first in range(0, len(prompts), batch_size):
            batch = prompts[first : first + batch_size]
            written = self.decode(pair, batch, max_new_tokens, num_draft_tokens)
            tokens += written.tokens
            forwards += written.forwards
            row_forwards += written.row_forwards
            yield sum(map(len, tokens))
        return Written(tokens, forwards, row_forwards)


def cut(row: list[int], eos: Sequence[int]) -> list[int]:
    """Return the row up to and with its first EOS."""
    ends = (i for i, token in enumerate(row, 1) if token in eos)
    return row[: next(ends, len(row))]


@dataclass(frozen=True)
class HfGenerate(Baseline):
    """`generate` of transformers on static batches, padded on the left."""

    name: ClassVar[str] = "hf_generate"

    def decode(
        self, pair: Pair, batch: Prompts, max_new_tokens: int, num_draft_tokens: int
    ) -> Written:
        return _generated(pair, batch, max_new_tokens)


@dataclass(frozen=True)
class HfAssisted(Baseline):
    """Assisted generation of transformers: batch 1, K drafts a round by the pair's draft model.

    Attributes:
        confidence: a draft token less likely than that ends a round's drafting, as
            `assistant_confidence_threshold` of transformers, whose default this is; 0: all K are
            drafted.
    """

    confidence: float = 0.4

    name: ClassVar[str] = "hf_assisted"
    drafts: ClassVar[bool] = True
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_share(self.confidence) or self.confidence == 1:
            raise ValueError(
                f"confidence must be a number >= 0 and < 1, got {short(self.confidence)}; "
                "pass 0 for all K draft tokens"
            )

    def decode(
        self, pair: Pair, batch: Prompts, max_new_tokens: int, num_draft_tokens: int
    ) -> Written:
        # The default schedule changes K from round to round; the strategies keep theirs.
        settings = {
            "num_assistant_tokens": num_draft_tokens,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": self.confidence,
        }
        config = pair.draft.generation_config  # which assisted generation reads
        before = {name: getattr(config, name, None) for name in settings}
        vars(config).update(settings)
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()  # mutes its advice
        try:
            return _generated(pair, batch, max_new_tokens, assistant_model=pair.draft)
        finally:
            logging.set_verbosity(verbosity)
            vars(config).update(before)


def _generated(pair: Pair, prompts: Prompts, max_new_tokens: int, **options: Any) -> Written:
    eos = pair.eos_token_ids
    padding = eos[0] if eos else 0  # masked, so that any id does
    rows = [torch.tensor(prompt, device=pair.device) for prompt in prompts]
    left: dict[str, Any] = {"batch_first": True, "padding_side": "left"}
    ids = pad_sequence(rows, padding_value=padding, **left)  # (B, T)
    mask = pad_sequence([torch.ones_like(row) for row in rows], **left)
    forwards: list[None] = []
    hook = pair.target.register_forward_pre_hook(lambda *_: forwards.append(None))
    try:
        written: Tensor = pair.target.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=padding,
            **options,
        )
    finally:
        hook.remove()
    # Assisted generation may write a few tokens too many, and a batch pads rows that have ended.
    new = written[:, ids.shape[1] : ids.shape[1] + max_new_tokens].tolist()
    tokens = [cut(row, eos) for row in new]
    # Rows that have ended stay in the batch.
    return Written(tokens, len(forwards), len(forwards) * len(prompts))


BASELINES: dict[str, type[Baseline]] = {kind.name: kind for kind in (HfGenerate, HfAssisted)}
