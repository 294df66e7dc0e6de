"""Try a model once before a run: do its logits stay the same when its K/V lies in our slabs?

Contract: a few forwards over a dozen tokens, once for each model object. Whether a class takes
explicit positions and masks can be read from its signature; whether it obeys them cannot. What
shows only in a longer text cannot be tried, so `compat` refuses it by configuration. Not known
here: strategies and requests.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import isfinite
from operator import itemgetter
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specviz.engine.features import Features, FeatureStore
from specviz.engine.heads.cached import CachedMtp
from specviz.engine.heads.mtp import MtpHead
from specviz.engine.kv.attention import plain_masks, query_groups, takes_grouped
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.layer_masks import shrunk
from specviz.engine.kv.states import find_mixers, without_limits
from specviz.engine.models.compat import attention_of, input_device

# Differences are measured in standard deviations of the logits. What is smaller than this changes
# no text but near ties, whatever the dtype. Beyond it, rounding is measured.
NEGLIGIBLE = 1e-5
# A difference counts if it exceeds this many times what rounding did to the model's own logits.
TIMES_NOISE = 3
# Of states of MTP layers, in their standard deviations. A wrong mask or position moves them by one.
MOST_ROUNDING = 0.1
VERIFIED = 3  # K + 1 queries of a row
# The second row is a prefix of the first, so one plain forward shows what both should be. Gaps are
# wide, so that positions by slot, or a hole that is seen, change much even in one layer of many.
# The second row ends with the window, where its first tokens lie behind the columns of the first
# queries: a model that takes a query's column for its place hides them.
SLOTS = [[1, 2, 34, 35, 36, 37, 38, 39, 70, 102, 103, 134], [100, 132, 133, 134, 135]]
WINDOW = 1 + max(map(max, SLOTS))
SHRUNK = 4  # tokens of a window
SPARE = 0  # takes the K/V of a shorter row's filling; no query sees it

# Models whose logits stayed the same, with the dtype, device and attention that they had. A refusal
# is not kept, since its reason may pass, as a hook of the user's does.
_tried: WeakKeyDictionary[PreTrainedModel, tuple[object, ...]] = WeakKeyDictionary()
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
    # Else a dozen tokens would all be in the window, and prompts read otherwise than single tokens.
    with shrunk(model, SHRUNK), without_limits(find_mixers(model)):
        problem = find_difference(model)
    if problem is not None:
        raise ValueError(
            f"{role}={type(model).__name__} cannot be decoded in a batch: {problem}; "
            "choose a model that takes explicit position ids, and a mask for each row and slot"
        )
    _tried[model] = conditions


@torch.inference_mode()
def check_layers(head: MtpHead) -> None:
    """Raise ValueError if what MTP layers compute depends on where their K/V lies."""
    conditions = (head.dtype, head.device, attention_of(head))
    if _tried.get(head) == conditions:
        return
    with shrunk(head, SHRUNK):
        problem = _try_layers(head)
        if problem is not None:
            plain_masks.add(head)
            problem = _try_layers(head)
    if problem is not None:
        plain_masks.discard(head)
        raise ValueError(
            f"the MTP layers of kind {head.kind_of_layers.__name__} cannot draft in a batch: "
            f"{problem}; pass another drafter"
        )
    _tried[head] = conditions


def _try_layers(head: MtpHead) -> str | None:
    """Compare what the layers make of two rows in slabs with what they make of a text alone."""
    tokens = token_ids(head, len(SLOTS[0]))
    generator = torch.Generator().manual_seed(0)
    size = head.settings.hidden_size
    drawn = torch.randn(1, len(tokens), size, generator=generator).to(head.device, head.dtype)
    wanted = Features(size, itemgetter(-1))
    store = FeatureStore(wanted, len(SLOTS), len(tokens), head.dtype, head.device)
    store.values[:] = drawn
    index = torch.arange(len(tokens), device=head.device)[None]
    text = torch.tensor([list(tokens)], device=head.device)
    whole = Feed(
        rows=index[:, 0],
        requests=[0],
        tokens=text,
        indices=index,
        positions=index,
        slots=index,
        visible=index[:, None] <= index[..., None],
        valid=torch.ones_like(index, dtype=torch.bool),
    )
    feeds = [make_feed(head, tokens, prefill=prefill) for prefill in (True, False)]
    try:
        expected = _last_states(CachedMtp(head, 1, len(tokens), None, store), [whole])
        found = _last_states(CachedMtp(head, len(SLOTS), WINDOW, None, store), feeds)
    except (MemoryError, torch.OutOfMemoryError):  # says nothing of the layers
        raise
    except Exception as error:  # whatever a class raises, it cannot be used
        message = str(error).strip().split("\n")[0].rstrip(".")
        return f"a trial forward raised {type(error).__name__}: {message}"
    difference = _median_difference(found, expected)
    if difference <= MOST_ROUNDING * float(expected.std()):
        return None
    return f"their states differ by {difference:.2g}, more than rounding explains"


def _last_states(cached: CachedMtp, feeds: Sequence[Feed]) -> Tensor:
    """Return what the last layer makes of the last tokens of row 0, (VERIFIED, D), in float32."""
    for feed in feeds:
        features = cached.features.before(feed.rows, feed.indices)
        _, states = cached.read_committed(cached.model, feed, features, dense=False, keep=0)
    return states[0, -VERIFIED:].float()


@torch.inference_mode()
def find_difference(model: PreTrainedModel) -> str | None:
    """Return in one clause how the model fails in slabs; None if its logits stay the same.

    Where grouped query heads fail and plain masks do not, the model gets plain masks from now on.
    """
    problem = _try(model)
    if problem is not None and query_groups(model) > 1:
        plain_masks.add(model)
        if _try(model) is None:
            return None
        plain_masks.discard(model)
    return problem


def _try(model: PreTrainedModel) -> str | None:
    """Compare the logits of two rows in slabs with those that the model computes by itself."""
    tokens = token_ids(model, len(SLOTS[0]))
    try:
        expected = _plain(model, tokens)
        cached = CachedModel(model, len(SLOTS), WINDOW, columns=VERIFIED)
        cached.prefill(make_feed(model, tokens, prefill=True))
        output = cached.forward(make_feed(model, tokens, prefill=False))
        found = output.logits.float()  # (b, q, V)
        difference = max(
            _median_difference(logits, expected[len(row) - VERIFIED : len(row)])
            for logits, row in zip(found, SLOTS, strict=True)
        )
        if _is_rounding(model, tokens, difference, expected):
            return None
    except (MemoryError, torch.OutOfMemoryError):  # says nothing of the model
        raise
    except Exception as error:  # whatever a class raises, it cannot be used
        message = str(error).strip().split("\n")[0].rstrip(".")
        return f"a trial forward raised {type(error).__name__}: {message}"
    return f"its logits differ by {difference:.2g}, more than rounding explains"


@torch.inference_mode()
def can_pack(model: PreTrainedModel) -> bool:
    """Return whether the model can compute rows of different width without filling; see `packing`.

    Found out by a trial, once for each model object. The answer costs time, never the text.
    """
    if model not in _can_pack:
        try:
            # Where there are mixers, rows have their own states.
            packs = takes_grouped(model) and not find_mixers(model)
            _can_pack[model] = packs and _packs_exactly(model)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:  # a class that does not hand keywords on may fail in any way
            return False
    return _can_pack[model]


def _packs_exactly(model: PreTrainedModel) -> bool:
    """Return whether a packed forward gives the logits of the rectangle."""
    tokens = token_ids(model, len(SLOTS[0]))
    feed = make_feed(model, tokens, prefill=False)
    widths = torch.tensor([1, VERIFIED], device=feed.rows.device)
    valid = torch.arange(VERIFIED, device=feed.rows.device) < widths[:, None]
    feed = replace(feed, valid=valid, count=1 + VERIFIED)
    found = []
    for packs in ("never", "always"):
        cached = CachedModel(model, len(SLOTS), WINDOW)
        cached.prefill(make_feed(model, tokens, prefill=True))
        cached.packs = packs
        found.append(cached.forward(feed).logits[valid].float())
    difference = _median_difference(found[1], found[0])
    return _is_rounding(model, tokens, difference, _plain(model, tokens))


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


def _plain(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Return the logits (n, V) of a text that is forwarded alone and without a cache."""
    ids = torch.tensor([list(tokens)], device=input_device(model))
    logits: Tensor = model(input_ids=ids, use_cache=False).logits
    return logits[0].float()


def _is_rounding(
    model: PreTrainedModel, tokens: Sequence[int], difference: float, expected: Tensor
) -> bool:
    """Return whether rounding explains a difference, given the model's own logits (n, V)."""
    spread = float(expected.std())
    if not isfinite(spread):
        spread = float(expected[expected.isfinite()].std())
    if difference <= NEGLIGIBLE * spread:
        return True
    return difference <= TIMES_NOISE * _noise(model, tokens, expected)


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


def make_feed(model: PreTrainedModel, tokens: Sequence[int], *, prefill: bool) -> Feed:
    """Return the feed of the first tokens of each row in SLOTS, or of its last VERIFIED ones.

    A shorter row repeats its last token, which writes to SPARE.
    """
    device = input_device(model)
    before = [len(row) - VERIFIED for row in SLOTS]
    width = max(before) if prefill else VERIFIED
    held = torch.full((len(SLOTS), 1, WINDOW), -1)
    indices = []
    written = []
    for number, (row, first) in enumerate(zip(SLOTS, before, strict=True)):
        held[number, 0, row] = torch.arange(len(row))
        own = list(range(first)) if prefill else list(range(first, len(row)))
        fill = width - len(own)
        indices.append(own + own[-1:] * fill)
        written.append([row[i] for i in own] + [SPARE] * fill)
    index = torch.tensor(indices)
    return Feed(
        rows=torch.arange(len(SLOTS), device=device),
        requests=list(range(len(SLOTS))),
        tokens=torch.tensor(tokens)[index].to(device),
        indices=index.to(device),
        positions=index.to(device),
        slots=torch.tensor(written, device=device),
        visible=((held >= 0) & (held <= index[:, :, None])).to(device),
        valid=(torch.tensor(written) != SPARE).to(device),
    )
