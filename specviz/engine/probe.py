"""Try a model once before a run: do its logits stay the same when its K/V lies in our slabs?

Contract: a few forwards over a dozen tokens, once for each model object, and once only for models
that differ in weights and sizes alone. Whether a class takes explicit positions and masks can be
read from its signature; whether it obeys them cannot. What shows only in a longer text cannot be
tried, so `compat` refuses it by configuration. Not known here: strategies and requests.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import isfinite
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specviz.engine.kv.attention import plain_masks, query_groups, takes_grouped
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.layer_masks import shrunk
from specviz.engine.kv.states import find_mixers, without_limits
from specviz.engine.models.compat import attention_of, input_device
from specviz.engine.models.layers import describe, first_layers

# Differences are measured in standard deviations of the logits. What is smaller than this changes
# no text but near ties, whatever the dtype. Beyond it, rounding is measured.
NEGLIGIBLE = 1e-5
# A difference counts if it exceeds this many times what rounding did to the model's own logits.
TIMES_NOISE = 3
VERIFIED = 3  # K + 1 queries of a row
# The second row is a prefix of the first, so one plain forward shows what both should be. Gaps are
# wide, so that positions by slot, or a hole that is seen, change much even in one layer of many.
# The second row ends with the window, where its first tokens lie behind the columns of the first
# queries: a model that takes a query's column for its place hides them.
SLOTS = [[1, 2, 34, 35, 36, 37, 38, 39, 70, 102, 103, 134], [100, 132, 133, 134, 135]]
SHRUNK = 4  # tokens of a window
SPARE = 0  # takes the K/V of a shorter row's filling; no query sees it

# Models whose logits stayed the same, with the dtype, device and attention that they had. A refusal
# is not kept, since its reason may pass, as a hook of the user's does.
_tried: WeakKeyDictionary[PreTrainedModel, tuple[object, ...]] = WeakKeyDictionary()
# Their descriptions, for models that differ from them in weights and sizes alone.
_passed: list[object] = []
# Whether a model can be packed.
_can_pack: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


def check_exact(role: str, model: PreTrainedModel) -> None:
    """Raise ValueError if the model's logits depend on where its K/V lies, or if it cannot run.

    A model that passed is tried again when its dtype, device or attention implementation changes.

    Args:
        role: "target" or "draft", for the message.
    """
    conditions = (model.dtype, input_device(model), attention_of(model))
    if _tried.get(model) == conditions:
        return
    problem = _judge(model, conditions)
    if problem is not None:
        raise ValueError(
            f"{role}={type(model).__name__} cannot be decoded in a batch: {problem}; "
            "choose a model that takes explicit position ids, and a mask for each row and slot"
        )
    _tried[model] = conditions


def _judge(model: PreTrainedModel, conditions: tuple[object, ...]) -> str | None:
    """Return what is wrong with the model, from a trial or from that of another one like it."""
    groups = query_groups(model) > 1
    kind = (conditions, groups, describe(first_layers(model) or model, sizes=False))
    if kind in _passed:
        return None
    # Else a dozen tokens would all be in the window, and prompts read otherwise than single tokens.
    with shrunk(model, SHRUNK), without_limits(find_mixers(model)):
        problem = find_difference(model)
    if problem is None and (query_groups(model) > 1) == groups:
        _passed.append(kind)
    return problem


@torch.inference_mode()
def find_difference(model: PreTrainedModel) -> str | None:
    """Return in one clause how the model fails in slabs; None if its logits stay the same."""
    # Layers of one kind do the same, so in most models two of many are enough.
    part = first_layers(model)
    if part is not None and _try(part) is None:
        return None
    problem = _try(model)
    if problem is not None and query_groups(model) > 1:
        plain_masks.add(model)
        problem_with_plain_masks = _try(model)
        if problem_with_plain_masks is None:
            return None
        plain_masks.discard(model)
    return problem


def _try(model: PreTrainedModel) -> str | None:
    """Compare the logits of two rows in slabs with those that the model computes by itself."""
    tokens = token_ids(model, len(SLOTS[0]))
    try:
        expected = _plain(model, tokens)
        difference = worst_difference(_in_slabs(model, tokens, SLOTS), SLOTS, expected)
        limit = NEGLIGIBLE * spread(expected)
        if difference > limit:
            limit = max(limit, TIMES_NOISE * _noise(model, tokens, expected))
        if not difference > limit:
            return None
        cause = _find_cause(model, tokens, expected, limit)
    except (MemoryError, torch.OutOfMemoryError):  # says nothing of the model
        raise
    except Exception as error:  # whatever a class raises, it cannot be used
        message = str(error).strip().split("\n")[0].rstrip(".")
        return f"a trial forward raised {type(error).__name__}: {message}"
    return f"its logits differ by {difference:.2g} where rounding explains {limit:.1g}, {cause}"


@torch.inference_mode()
def can_pack(model: PreTrainedModel) -> bool:
    """Return whether the model can compute rows of different width without filling; see `packing`.

    Found out by a trial, once for each model object. The answer costs time, never the text.
    """
    if model not in _can_pack:
        try:
            packs = takes_grouped(model) and not find_mixers(model)  # rows have their own states
            _can_pack[model] = packs and _packs_exactly(model)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:  # a class that does not hand keywords on may fail in any way
            return False
    return _can_pack[model]


def _packs_exactly(model: PreTrainedModel) -> bool:
    """Return whether a packed forward gives the logits of the rectangle."""
    tokens = token_ids(model, len(SLOTS[0]))
    feed = make_feed(model, tokens, SLOTS, prefill=False)
    widths = torch.tensor([1, VERIFIED], device=feed.rows.device)
    valid = torch.arange(VERIFIED, device=feed.rows.device) < widths[:, None]
    feed = replace(feed, valid=valid, count=1 + VERIFIED)
    found = []
    for packs in ("never", "always"):
        cached = CachedModel(model, len(SLOTS), max(map(max, SLOTS)) + 1)
        cached.prefill(make_feed(model, tokens, SLOTS, prefill=True))
        cached.packs = packs
        found.append(cached.forward(feed)[valid].float())
    limit = NEGLIGIBLE * spread(found[0])
    if _median_difference(found[1], found[0]) <= limit:
        return True
    return _median_difference(found[1], found[0]) <= TIMES_NOISE * _noise(
        model, tokens, _plain(model, tokens)
    )


def token_ids(model: PreTrainedModel, count: int) -> list[int]:
    """Return token ids that are not special, all different if the vocabulary allows."""
    config = model.config.get_text_config()
    special: set[int | None] = set()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        value = getattr(config, name, None)
        special.update(value if isinstance(value, list) else [value])
    usable = (i for i in range(config.vocab_size) if i not in special)
    found = list(islice(usable, count)) or [0]
    return [found[i % len(found)] for i in range(count)]


def _plain(
    model: PreTrainedModel, tokens: Sequence[int], positions: Tensor | None = None
) -> Tensor:
    """Return the logits (n, V) of a text that is forwarded alone and without a cache.

    Args:
        positions: (n,); None for those that the model counts itself.
    """
    ids = torch.tensor([list(tokens)], device=input_device(model))
    given = {} if positions is None else {"position_ids": positions[None]}
    logits: Tensor = model(input_ids=ids, use_cache=False, **given).logits
    return logits[0].float()


def _one_by_one(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Return the logits (n, V) of a text that is forwarded token by token, as in `generate`."""
    cache = None
    logits = []
    for i, token in enumerate(tokens):
        ids = torch.tensor([[token]], device=input_device(model))
        places = torch.full_like(ids, i)
        output = model(input_ids=ids, past_key_values=cache, use_cache=True, position_ids=places)
        cache = output.past_key_values
        logits.append(output.logits[0, -1].float())
    return torch.stack(logits)


def _noise(model: PreTrainedModel, tokens: Sequence[int], expected: Tensor) -> float:
    """Return what rounding does to this model's logits.

    Each value that the embedding returns is rounded otherwise, up or down by one unit in its last
    place. What becomes of that is what the model makes of any rounding.
    """
    generator = torch.Generator().manual_seed(0)  # the caller's random state stays as it is
    # In float64, too, classes compute norms and rotary positions in float32.
    step = max(torch.finfo(dtype).eps for dtype in (model.dtype, torch.float32))

    def round_otherwise(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        signs = torch.randint(0, 2, output.shape, generator=generator) * 2 - 1
        return (output * (1 + step * signs.to(output.device))).to(output.dtype)

    hook = model.get_input_embeddings().register_forward_hook(round_otherwise)
    try:
        return _median_difference(_plain(model, tokens), expected)
    finally:
        hook.remove()


def _median_difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference in a query's logits, in the median over queries (n, V).

    The median, because a single query may differ by chance in low precision, where rounding can
    send a token to another expert.
    """
    difference = (found - expected).abs().nan_to_num(torch.inf)
    # A model may rule tokens out by -inf, and one that is broken computes NaN by itself, too.
    same = (found == expected) | (found.isnan() & expected.isnan())
    return float(difference.masked_fill(same, 0).amax(-1).median())


def spread(logits: Tensor) -> float:
    """Return the standard deviation of the finite logits."""
    spread = float(logits.std())
    return spread if isfinite(spread) else float(logits[logits.isfinite()].std())


def worst_difference(found: Tensor, slots: list[list[int]], expected: Tensor) -> float:
    """Return how far the last logits (b, q, V) of the worst row are from those expected (n, V)."""
    return max(
        _median_difference(logits, expected[len(row) - VERIFIED : len(row)])
        for logits, row in zip(found, slots, strict=True)
    )


def _in_slabs(model: PreTrainedModel, tokens: Sequence[int], slots: list[list[int]]) -> Tensor:
    """Return the logits (b, q, V) of each row's last q tokens, after a prefill of the others.

    Each row holds as many of `tokens` as it has slots.
    """
    cached = CachedModel(model, len(slots), max(map(max, slots)) + 1, columns=VERIFIED)
    cached.prefill(make_feed(model, tokens, slots, prefill=True))
    return cached.forward(make_feed(model, tokens, slots, prefill=False)).float()


def make_feed(
    model: PreTrainedModel,
    tokens: Sequence[int],
    slots: list[list[int]],
    prefill: bool,
) -> Feed:
    """Return the feed of each row's first tokens, or of its last ones.

    A shorter row repeats its last token, which writes to SPARE.
    """
    device = input_device(model)
    before = [len(row) - VERIFIED for row in slots]
    width = max(before) if prefill else VERIFIED
    held = torch.full((len(slots), 1, max(map(max, slots)) + 1), -1)
    indices = []
    written = []
    for number, (row, first) in enumerate(zip(slots, before, strict=True)):
        held[number, 0, row] = torch.arange(len(row))
        own = list(range(first)) if prefill else list(range(first, len(row)))
        fill = width - len(own)
        indices.append(own + own[-1:] * fill)
        written.append([row[i] for i in own] + [SPARE] * fill)
    index = torch.tensor(indices)
    return Feed(
        rows=torch.arange(len(slots), device=device),
        requests=list(range(len(slots))),
        tokens=torch.tensor(tokens)[index].to(device),
        indices=index.to(device),
        positions=index.to(device),
        slots=torch.tensor(written, device=device),
        visible=((held >= 0) & (held <= index[:, :, None])).to(device),
        valid=(torch.tensor(written) != SPARE).to(device),
    )


def _find_cause(
    model: PreTrainedModel, tokens: Sequence[int], expected: Tensor, limit: float
) -> str:
    """Return which of positions, mask and K/V the model does not apply as they are passed."""

    def differs(*slots: range) -> bool:
        rows = [list(row) for row in slots]
        return worst_difference(_in_slabs(model, tokens, rows), rows, expected) > limit

    counted = torch.arange(len(tokens), device=input_device(model))
    if _median_difference(_plain(model, tokens, counted), expected) > limit:
        return "since it does not count positions from 0"
    if _median_difference(_plain(model, tokens, 2 * counted), expected) <= limit:
        return "since it does not read position_ids"
    n = len(tokens)
    if differs(range(1, n + 1)):
        if _median_difference(_one_by_one(model, tokens), expected) > limit:
            return "since with a cache of its own it computes others than without"
        return "since it reads other K/V than the cache returns"
    if differs(range(1, n + 1), range(1, 6)):
        return "since it does not give each row a mask of its own"
    if differs(range(1, n + 1), range(n - 4, n + 1)):
        return "since it masks cache columns by a rule of its own"
    return "since it does not obey a mask with holes"
