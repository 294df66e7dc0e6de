"""Try a model once before a run: do its logits stay the same when its K/V lies in our slabs?

Contract: a few forwards over a dozen tokens, once for each model object. Whether a class takes
explicit positions and masks can be read from its signature; whether it obeys them cannot. Not known
here: strategies and requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.kv.attention import plain_masks, query_groups
from specviz.engine.kv.cache import CachedModel, Feed
from specviz.engine.models.compat import input_device

# A difference counts if it exceeds this many times what rounding did to the model's own logits.
TIMES_NOISE = 10
# Rounding is taken to be at least so many units in the last place of the logits' scale.
LEAST_ULPS = 50
VERIFIED = 3  # K + 1 queries of a row

# By model: the dtype, device and attention that it was tried with, and what was wrong, if anything.
_verdicts: WeakKeyDictionary[PreTrainedModel, tuple[tuple[object, ...], str | None]] = (
    WeakKeyDictionary()
)


@dataclass(frozen=True)
class Rows:
    """Token ids of some rows, and the slots that they are written to."""

    tokens: list[list[int]]
    slots: list[list[int]]


def check_exact(role: str, model: PreTrainedModel) -> None:
    """Raise ValueError if the model's logits depend on where its K/V lies, or if it cannot run.

    Args:
        role: "target" or "draft", for the message.
    """
    attention = model.config._attn_implementation
    conditions = (model.dtype, input_device(model), attention)
    tried = _verdicts.get(model)
    if tried is None or tried[0] != conditions:
        tried = (conditions, find_difference(model))
        _verdicts[model] = tried
    if tried[1] is not None:
        raise ValueError(
            f"{role}={type(model).__name__} cannot be decoded in a batch: {tried[1]}; "
            "choose a model that takes explicit position ids, and a mask for each row and slot"
        )


@torch.inference_mode()
def find_difference(model: PreTrainedModel) -> str | None:
    """Return in one clause how the model fails in slabs; None if its logits stay the same."""
    problem = _try(model)
    if problem is not None and query_groups(model) > 1:
        plain_masks.add(model)
        problem_with_plain_masks = _try(model)
        if problem_with_plain_masks is None:
            return None
        plain_masks.discard(model)
    return problem


def _try(model: PreTrainedModel) -> str | None:
    """Compare the logits of two short texts with those that the model computes by itself."""
    first = _token_ids(model, 8)
    # Rows of different length; starts beyond slot 0; holes in between, as masking leaves them.
    ragged = Rows([first, first[3:]], [[3, 4, 6, 7, 8, 10, 11, 12], [1, 2, 3, 5, 6]])
    try:
        expected = [_plain(model, tokens) for tokens in ragged.tokens]
        limit = _limit(expected[0], _plain(model, first[:-1]))
        difference = _difference(_in_slabs(model, ragged), expected)
        if difference <= limit:
            return None
        cause = _find_cause(model, first, expected[0], limit)
    except Exception as error:  # whatever a class raises, it cannot be used
        message = str(error).strip().split("\n")[0]
        return f"a trial forward raised {type(error).__name__}: {message}"
    return f"its logits differ by {difference:.2g} where rounding explains {limit:.1g}, {cause}"


def _token_ids(model: PreTrainedModel, count: int) -> list[int]:
    """Return different token ids, none of them special."""
    config = model.config.get_text_config()
    special = set()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        value = getattr(config, name, None)
        special.update(value if isinstance(value, list) else [value])
    usable = (i for i in range(config.vocab_size) if i not in special)
    found = [token for token, _ in zip(usable, range(3 * count), strict=False)]
    return found[::3] + found[: count - len(found[::3])]


def _plain(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Return the logits (n, V) of a text that is forwarded alone and without a cache."""
    ids = torch.tensor([list(tokens)], device=input_device(model))
    return model(input_ids=ids, use_cache=False).logits[0].float()


def _limit(logits: Tensor, of_prefix: Tensor) -> float:
    """Return the largest difference that rounding explains.

    The logits of a prefix, computed in another shape, show what rounding does to this model.
    """
    noise = (logits[: len(of_prefix)] - of_prefix).abs().amax(-1).median()
    ulp = torch.finfo(logits.dtype).eps
    return float(TIMES_NOISE * noise + LEAST_ULPS * ulp * logits.std())


def _difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference of a query's logits, in the median over queries.

    The median, because a single query may differ by chance in low precision, where rounding can
    send a token to another expert.
    """
    each = [
        (mine - plain[-len(mine) :]).abs().amax(-1)
        for mine, plain in zip(found, expected, strict=True)
    ]
    return float(torch.cat(each).nan_to_num(torch.inf).median())


def _in_slabs(model: PreTrainedModel, rows: Rows) -> list[Tensor]:
    """Return the logits (q, V) of each row's last tokens, after a prefill of the others."""
    cached = CachedModel(model, len(rows.tokens), max(map(max, rows.slots)) + 1)
    for row, tokens in enumerate(rows.tokens):
        cached.prefill(_feed(model, rows, [row], range(len(tokens) - VERIFIED)))
    queries = [range(len(tokens) - VERIFIED, len(tokens)) for tokens in rows.tokens]
    logits = cached.forward(_feed(model, rows, list(range(len(rows.tokens))), *queries))
    return list(logits.float())


def _feed(model: PreTrainedModel, rows: Rows, chosen: list[int], *indices: range) -> Feed:
    """Return the feed of tokens with these indices, a range for each chosen row."""
    device = input_device(model)
    window = max(map(max, rows.slots)) + 1
    held = torch.full((len(chosen), 1, window), -1, device=device)
    for number, row in enumerate(chosen):
        held[number, 0, rows.slots[row]] = torch.arange(len(rows.slots[row]), device=device)
    index = torch.tensor([list(each) for each in indices], device=device)
    of_row = list(zip(chosen, indices, strict=True))
    return Feed(
        rows=torch.tensor(chosen, device=device),
        requests=chosen,
        tokens=torch.tensor(
            [[rows.tokens[row][i] for i in each] for row, each in of_row], device=device
        ),
        indices=index,
        positions=index,
        slots=torch.tensor(
            [[rows.slots[row][i] for i in each] for row, each in of_row], device=device
        ),
        visible=(held >= 0) & (held <= index[:, :, None]),
        valid=torch.ones_like(index, dtype=torch.bool),
    )


def _find_cause(model: PreTrainedModel, tokens: list[int], expected: Tensor, limit: float) -> str:
    """Return which of positions, mask and K/V the model takes otherwise than it is told."""
    ids = torch.tensor([tokens], device=input_device(model))
    spread = 2 * torch.arange(len(tokens), device=ids.device)[None]
    moved = model(input_ids=ids, position_ids=spread, use_cache=False).logits[0].float()
    if _difference([moved], [expected]) <= limit:
        return "since it does not read position_ids"
    n = len(tokens)
    if _difference(_in_slabs(model, Rows([tokens], [list(range(n))])), [expected]) > limit:
        return "since it reads other K/V than the cache returns"
    if _difference(_in_slabs(model, Rows([tokens], [list(range(2, n + 2))])), [expected]) > limit:
        return "since it masks cache columns by a rule of its own"
    return "since it does not obey a mask with holes, or one that differs between rows"
