"""The target of an audit: a causal LM of any kind of attention with its tokenizer. The draft of a
pair says only whose a candidate's log-probabilities are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from specviz.checks.audit.duo import Duo
from specviz.checks.audit.reading import OutputSet
from specviz.engine.batch import Request
from specviz.engine.models.compat import (
    check_causal,
    check_vocabularies,
    input_device,
    position_limit,
)
from specviz.engine.models.hub import find
from specviz.engine.models.pair import DTYPES, Pair, find_device
from specviz.engine.models.settings import describe_ignored
from specviz.engine.options import Options
from specviz.engine.processors import Processors
from specviz.util.validate import require_choice, short


@dataclass(frozen=True, eq=False)
class Target:
    """A model that scores texts, its tokenizer or None, and the draft of its pair or None.

    processors: what the logits are processed by; None if that is not known.

    Raises:
        ValueError, TypeError: the model is not a causal LM, or the tokenizer is not its own.
    """

    target: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None = None
    draft: "Target | None" = None
    processors: Processors | None = None

    def __post_init__(self) -> None:
        check_causal("target", self.target)
        check_vocabularies(self.target, self.target, self.tokenizer)

    @property
    def device(self) -> torch.device:
        """The device of the model's inputs."""
        return input_device(self.target)

    @property
    def vocabulary_size(self) -> int:
        """V: the rows of the embedding."""
        return int(self.target.config.get_text_config().vocab_size)

    @property
    def dtype(self) -> str:
        """The dtype of the weights, "bfloat16"."""
        return str(self.target.dtype).removeprefix("torch.")

    @property
    def max_positions(self) -> int | None:
        """Positions that the model has; None if it states no limit."""
        return position_limit(self.target)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The ids that end a text."""
        config = getattr(self.target, "generation_config", None) or self.target.config
        ids = config.eos_token_id
        if ids is None:
            return frozenset()
        return frozenset([ids] if isinstance(ids, int) else ids)

    @property
    def padding_ids(self) -> frozenset[int]:
        """The ids that fill up a row of a batch."""
        configs = (getattr(self.target, "generation_config", None), self.tokenizer)
        ids = (getattr(each, "pad_token_id", None) for each in configs)
        return frozenset(each for each in ids if each is not None)

    @property
    def ignored(self) -> str | None:
        """In a sentence, what the target asks of `generate` that plain forwards do not compute."""
        return None if self.processors is not None else describe_ignored(self.target)

    def processors_of(self, prompt: Sequence[int], new: Sequence[int]) -> LogitsProcessorList:
        """Return what the logits of one text are processed by."""
        if self.processors is None:
            return LogitsProcessorList()
        # Made anew for each, since they may depend on the prompt.
        return self.processors.make(Request(0, tuple(prompt), len(new)))

    @property
    def name(self) -> str:
        """What a report calls it: the last part of its path, or its class."""
        path = Path(self.target.name_or_path)
        return path.name or type(self.target).__name__

    def check(self, duos: Sequence[Duo], sides: Iterable[OutputSet]) -> None:
        """Raise ValueError if it cannot score these outputs: other ids, no prompts, no room."""
        size, limit = self.vocabulary_size, self.max_positions
        for side in sides:
            for output in side.outputs:
                for key, ids in (
                    ("prompt_token_ids", output.prompt_ids),
                    ("token_ids", output.token_ids),
                ):
                    if max(ids or (0,)) >= size:
                        raise ValueError(
                            f"{output.where}: {key} has the id {max(ids or ())}, but target "
                            f"{self.name} has a vocabulary of {size}; pass the target that wrote "
                            "these outputs"
                        )
            self._check_text(side)
        for duo in duos:
            both = (duo.candidate, duo.reference)
            is_text = duo.is_parted and not duo.has_ids
            is_text |= not duo.prompt_ids and any(side.prompt is not None for side in both)
            if is_text and self.tokenizer is None:
                raise ValueError(
                    f"{duo.candidate.where} or its prompt is text, but the target has no "
                    "tokenizer; pass its folder, or tokenizer="
                )
            if not duo.prompt_ids and not any(side.messages for side in both):
                raise ValueError(
                    f"{duo.candidate.where} has no prompt, and the target cannot score a text "
                    "without its prompt; pass prompts="
                )
            length = len(duo.prompt_ids or ()) + max(len(duo.ours), len(duo.theirs))
            if limit is not None and duo.is_parted and length > limit:
                raise ValueError(
                    f"{duo.candidate.where} is {length} tokens long with its prompt, but target "
                    f"{self.name} has {limit} positions; pass the target that wrote it"
                )

    def _check_text(self, side: OutputSet) -> None:
        """Raise ValueError if the tokenizer reads the ids of no output as its text."""
        if self.tokenizer is None:
            return
        differing = None
        for output in side.outputs:
            if not output.token_ids or not (output.text or "").strip():
                continue
            text = (output.text or "").strip().rstrip("\ufffd")
            for skip in (True, False):
                read = self.tokenizer.decode(output.token_ids, skip_special_tokens=skip)
                # A stop string may have been cut off the text, and the first space of a text, too.
                if read.strip().startswith(text):
                    return
            differing = differing or (output, read)
        if differing is not None:
            output, read = differing
            raise ValueError(
                f"{output.where}: target {self.name} reads its token_ids as {short(read)}, but its "
                f"text is {short(output.text)}; pass the target that wrote these outputs"
            )


def find_target(
    target: Any,
    tokenizer: PreTrainedTokenizerBase | None,
    device: str | None,
    dtype: str | None,
    generation_config: str | GenerationConfig | None = None,
) -> Target:
    """Return the target that a folder or hub id, a pair or a model stands for, to evaluate it.

    Args:
        target: a folder or hub id, a `Pair`, or a transformers model.
        tokenizer: of a model in memory, else None.
        device, dtype: of a target that is loaded, else None; see `load_pair`.
        generation_config: what its logits are processed by; None for nothing.

    Raises:
        ValueError: the target cannot be loaded, or an argument does not belong to it.
        FileNotFoundError: the folder does not exist, or holds no model.
        TypeError: it is none of these.
    """
    is_stored = isinstance(target, str | Path)
    for name, value in (("device", device), ("dtype", dtype)):
        if value is not None and not is_stored:
            raise ValueError(
                f"{name}={value!r} is for a target that is loaded from a folder; leave it out for "
                "a model in memory"
            )
    if tokenizer is not None and not isinstance(target, PreTrainedModel):
        raise ValueError(
            "tokenizer is given, but the target brings its own; pass it with a model in memory only"
        )
    found = _found(target, tokenizer, device, dtype, is_stored)
    if generation_config is None:
        return found
    eos = sorted(found.eos_token_ids)
    options = Options(generation_config=generation_config).resolved(found.target, eos)
    return replace(found, processors=options.make_processors(found.target, eos))


def _found(
    target: Any,
    tokenizer: PreTrainedTokenizerBase | None,
    device: str | None,
    dtype: str | None,
    is_stored: bool,
) -> Target:
    if isinstance(target, Pair):
        return Target(target.target.eval(), target.tokenizer, Target(target.draft.eval()))
    if isinstance(target, PreTrainedModel):
        return Target(target.eval(), tokenizer)
    if not is_stored:
        raise TypeError(
            f"target must be a folder, a hub id, a Pair or a transformers model, got "
            f"{type(target).__name__}; pass one of them"
        )
    place = find_device(device)
    kind: Any = "auto" if dtype is None else DTYPES[require_choice("dtype", dtype, DTYPES)]
    source = find("target", target)
    found_tokenizer = source.load(AutoTokenizer)
    model = source.load(AutoModelForCausalLM, dtype=kind, use_safetensors=True)
    return Target(model.to(place), found_tokenizer)
