"""What changes a row's logits or ends it by its own text: logits processors and stop strings.

Processors are those of transformers. Each score is processed with the text of its own row, and with
the drafts before it; so what a row writes is what `generate` writes for its prompt alone. Not known
here: how tokens are chosen.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from specviz.engine.batch import Batch, Request, Row
from specviz.engine.draft import Draft
from specviz.engine.models.settings import listed as named
from specviz.engine.models.settings import with_effect
from specviz.engine.sampling import SamplingParams

Make = Callable[[Request], LogitsProcessorList]
# Settings that no processor carries out.
_REFUSED = (
    *("num_beams", "guidance_scale", "penalty_alpha", "dola_layers", "watermarking_config"),
    *("force_words_ids", "constraints", "max_time", "token_healing"),
)
# What warps the target's distribution beside `SamplingParams`, and the values that do not.
_WARPERS: dict[str, tuple[Any, ...]] = {
    "min_p": (None, 0),
    "typical_p": (None, 1),
    "epsilon_cutoff": (None, 0),
    "eta_cutoff": (None, 0),
    "top_h": (None,),
}


class Processors:
    """Processes the logits of a batch of rows of different lengths.

    make: returns new processors of a request, since they may depend on its prompt.
    """

    def __init__(self, make: Make, eos_token_ids: Sequence[int]) -> None:
        self.make = make
        self._eos = set(eos_token_ids)
        self._made: dict[int, LogitsProcessorList] = {}

    def of(self, request: Request) -> LogitsProcessorList:
        """Return the processors of a request."""
        if request.index not in self._made:
            self._made[request.index] = self.make(request)
        return self._made[request.index]

    def next(self, batch: Batch, ahead: Sequence[Tensor], logits: Tensor) -> Tensor:
        """Return processed logits (b, V), float32, of the token behind `ahead`, (b, 1) each.

        Those of rows that have finished, or that will with one of these tokens, stay as they are.
        """
        behind = torch.cat([*ahead], 1).tolist() if ahead else [[] for _ in batch.rows]
        rows = [
            (row, tokens)
            for row, tokens in enumerate(behind)
            if not batch.rows[row].finished and self._eos.isdisjoint(tokens)
        ]
        logits = logits.float().clone()
        if rows:
            at = [row for row, _ in rows]
            logits[at] = self._process(batch, rows, logits[at])
        return logits

    def all(self, batch: Batch, draft: Draft, logits: Tensor) -> Tensor:
        """Return processed logits (b, K+1, V), float32: after the pending token and each draft.

        A draft that its processed logits rule out is never accepted, and nothing follows EOS: what
        is behind such a draft stays as it was, since processors are not made for such texts.
        """
        logits = logits.float().clone()
        tokens = draft.tokens.tolist()  # (b, K)
        chain = [list(range(-1, draft.tokens.shape[1] - 1))] * len(tokens)
        parents = chain if draft.parents is None else draft.parents.tolist()
        lengths = [len(each) for each in tokens]
        if draft.lengths is not None:
            lengths = draft.lengths.tolist()
        # By row and column, the drafts that a column follows; no entry for one that is left out.
        paths: list[dict[int, list[int]]] = [{} if row.finished else {0: []} for row in batch.rows]
        for column in range(logits.shape[1]):
            if column:
                self._follow(paths, column, tokens, parents, lengths, logits)
            rows = [(row, path[column]) for row, path in enumerate(paths) if column in path]
            if rows:
                at = [row for row, _ in rows]
                logits[at, column] = self._process(batch, rows, logits[at, column])
        return logits

    def _follow(
        self,
        paths: list[dict[int, list[int]]],
        column: int,
        tokens: list[list[int]],
        parents: list[list[int]],
        lengths: list[int],
        logits: Tensor,
    ) -> None:
        """Add the path to a column in each row where its draft may be accepted."""
        number = column - 1
        for row, path in enumerate(paths):
            before = path.get(parents[row][number] + 1)
            token = tokens[row][number]
            if before is None or number >= lengths[row] or token in self._eos:
                continue
            if logits[row, parents[row][number] + 1, token] > -torch.inf:
                path[column] = [*before, token]

    def _process(
        self, batch: Batch, rows: Sequence[tuple[int, list[int]]], logits: Tensor
    ) -> Tensor:
        """Return processed logits (m, V) of the rows, each with the tokens behind its text."""
        # Rows of one length go through one call, as a batch without padding.
        groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for place, (row, behind) in enumerate(rows):
            live = batch.rows[row]
            groups[live.length, len(behind), id(self.of(live.request))].append(place)
        for (length, _, _), places in groups.items():
            at = [rows[place][0] for place in places]
            text = batch.tokens[at, :length]
            ahead = torch.tensor([rows[place][1] for place in places], dtype=torch.long)
            ids = torch.cat([text, ahead.to(text.device)], 1)
            processors = self.of(batch.rows[at[0]].request)
            logits[places] = processors(ids, logits[places])
        return logits


def listed(processors: Any) -> LogitsProcessorList:
    """Return the processors that a caller passed as a list.

    Raises ValueError for anything else.
    """
    given = processors if isinstance(processors, list | tuple) else [processors]
    for each in given:
        if not isinstance(each, LogitsProcessor):
            raise ValueError(
                "logits_processor must be transformers' LogitsProcessor objects, got "
                f"{type(each).__name__}; derive from LogitsProcessor"
            )
    return LogitsProcessorList(given)


def configured(target: PreTrainedModel, config: GenerationConfig, own: LogitsProcessorList) -> Make:
    """Return what makes the processors that a generation config names, and the caller's own."""

    def make(request: Request) -> LogitsProcessorList:
        length = len(request.prompt)
        own_config = copy.deepcopy(config)
        own_config.do_sample = False  # the warpers are in `SamplingParams`
        own_config.max_length = length + request.budget
        device = target.device
        prompt = torch.tensor([request.prompt], device=device)
        # Which settings there are, and their order, only transformers knows.
        generating: Any = target
        generating._prepare_special_tokens(own_config, device=device)
        made: LogitsProcessorList = generating._get_logits_processor(
            own_config, length, prompt, logits_processor=own, device=device
        )
        return made

    return make


def full_config(
    target: PreTrainedModel, given: GenerationConfig | None, eos_token_ids: Sequence[int]
) -> GenerationConfig:
    """Return a generation config with the target's values and the defaults where it has none.

    Raises ValueError if it names other EOS ids.
    """
    generating: Any = target
    config: GenerationConfig = generating._prepare_generation_config(given)[0]
    eos = config.eos_token_id
    ids = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
    if set(ids) != set(eos_token_ids):
        raise ValueError(
            f"generation_config has eos_token_id={eos!r}, and the target ends a text at "
            f"{list(eos_token_ids)}; set it on target.generation_config, too"
        )
    return config


def sampled(config: GenerationConfig) -> SamplingParams | None:
    """Return how a generation config samples; None for greedy decoding."""
    if not config.do_sample:
        return None
    top_p = config.top_p if config.top_p is not None and config.top_p < 1 else None
    return SamplingParams(config.temperature or 1.0, config.top_k or None, top_p)


def check_config(config: GenerationConfig) -> None:
    """Raise ValueError for a setting that is neither a processor nor can be left out."""
    found = {name: value for name, value in with_effect(config).items() if name in _REFUSED}
    for name, without_effect in _WARPERS.items() if config.do_sample else ():
        value = getattr(config, name, None)
        if value not in without_effect:
            found[name] = value
    if found:
        raise ValueError(
            f"generation_config has {named(found)}, which is not supported; set it to None there"
        )


def check_stateless(
    processors: LogitsProcessorList, prompt: Sequence[int], size: int, device: torch.device
) -> None:
    """Try each processor twice on one text, with a longer one between.

    size: V.

    Raises ValueError if it returns something else the second time: then what it returns for a row
    depends on what it was called with before, on drafts that were rejected, for instance.
    """
    order = torch.randperm(size, generator=torch.Generator().manual_seed(0))
    scores = torch.linspace(-1, 1, size)[order][None].to(device)
    text = torch.tensor([prompt], device=device)
    for each in processors:
        found = []
        try:
            found.append(each(text.clone(), scores.clone()))
            longer = torch.cat([text, found[0].argmax(-1, keepdim=True)], 1)
            each(longer, scores.clone())
            found.append(each(text.clone(), scores.clone()))
        except Exception as error:
            raise ValueError(_stateful(each, f"it raised {error!r}")) from error
        if not torch.equal(*(one.nan_to_num() for one in found)):
            raise ValueError(_stateful(each, "it returned other scores the second time"))


def _stateful(processor: LogitsProcessor, what: str) -> str:
    return (
        f"logits_processor={type(processor).__name__} cannot be called for several drafts of one "
        f"text: {what}; pass one whose scores depend on its arguments alone"
    )


class Stops:
    """Ends a row at the first token that completes a stop string in its new text."""

    def __init__(self, strings: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> None:
        self._strings = strings
        self._tokenizer = tokenizer

    def ends(self, tokens: Sequence[int]) -> bool:
        """Whether the text of these tokens has a stop string."""
        text = str(self._tokenizer.decode(tokens, skip_special_tokens=False))
        return any(each in text for each in self._strings)

    def limits(self, rows: Sequence[Row], emitted: Tensor, accepted: Tensor) -> Tensor:
        """Return how many of the emitted tokens (b, K+1) come up to a stop string, (b,).

        It is K + 2 where none is completed.

        accepted: (b,), behind so many of them comes the last one that counts.
        """
        limits = []
        for row, tokens, count in zip(rows, emitted.tolist(), accepted.tolist(), strict=True):
            stop = len(tokens) + 1
            kept = [] if row.finished else tokens[: count + 1]
            if kept and self.ends([*row.output, *kept]):
                texts = ([*row.output, *kept[:n]] for n in range(1, len(kept) + 1))
                stop = next(n for n, text in enumerate(texts, 1) if self.ends(text))
            limits.append(stop)
        return torch.tensor(limits, device=emitted.device)
