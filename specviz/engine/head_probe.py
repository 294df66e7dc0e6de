"""Try a draft head once before a run: is its output the same when its K/V lies in our slabs?

Contract: as `probe`, for heads that keep K/V. Their entries read features, which are random here. A
head decides no token of the text, but one that reads its slabs wrongly drafts badly, and nothing
else would tell. Not known here: strategies and requests.
"""

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from specviz.engine.features import Features, FeatureStore
from specviz.engine.heads import DraftHead
from specviz.engine.heads.cached import CachedHead
from specviz.engine.heads.modules import shifted
from specviz.engine.models.compat import attention_of
from specviz.engine.probe import (
    NEGLIGIBLE,
    SLOTS,
    TIMES_NOISE,
    VERIFIED,
    make_feed,
    spread,
    token_ids,
    worst_difference,
)

# Heads whose output stayed the same, with the dtype, device and attention that they had.
_tried: WeakKeyDictionary[DraftHead, tuple[object, ...]] = WeakKeyDictionary()


def check_head(head: DraftHead) -> None:
    """Raise ValueError if the head's output depends on where its K/V lies, or if it cannot run."""
    conditions = (head.dtype, head.device, attention_of(head))
    if not head.settings.has_cache or _tried.get(head) == conditions:
        return
    problem = find_difference(head)
    if problem is not None:
        raise ValueError(
            f"the draft head {head.settings.kind!r} cannot draft in a batch: {problem}; "
            "load it again with load_heads, or pass drafter='model'"
        )
    _tried[head] = conditions


@torch.inference_mode()
def find_difference(head: DraftHead) -> str | None:
    """Return in one clause how the head fails in slabs; None if its output stays the same."""
    count = len(SLOTS[0])
    tokens = token_ids(head, count)
    generator = torch.Generator().manual_seed(0)  # the caller's random state stays as it is
    features = torch.randn(count, head.settings.hidden_size, generator=generator).to(
        head.device, head.dtype
    )
    try:
        expected = _plain(head, tokens, features)
        difference = worst_difference(_in_slabs(head, tokens, features), SLOTS, expected)
        limit = NEGLIGIBLE * spread(expected)
        if difference > limit:
            limit = max(limit, TIMES_NOISE * _noise(head, tokens, features, expected))
    except (MemoryError, torch.OutOfMemoryError):  # says nothing of the head
        raise
    except Exception as error:  # whatever a class raises, it cannot be used
        message = str(error).strip().split("\n")[0].rstrip(".")
        return f"a trial forward raised {type(error).__name__}: {message}"
    if not difference > limit:
        return None
    return f"its output differs by {difference:.2g} where rounding explains {limit:.1g}"


def _plain(head: DraftHead, tokens: list[int], features: Tensor) -> Tensor:
    """Return the output (n, D) for a text that is read alone and without a cache."""
    ids = torch.tensor([tokens], device=head.device)
    positions = torch.arange(len(tokens), device=head.device)[None]
    # An entry that is hidden from all others might as well not be there.
    first = 1 if head.settings.hides_first else 0
    output = head(
        input_ids=ids[:, first:],
        features=shifted(features[None])[:, first:],
        position_ids=positions[:, first:],
        logits_to_keep=len(tokens) - first,
    )
    hidden: Tensor = output.hidden[0].float()
    return torch.cat([hidden.new_zeros(first, hidden.shape[1]), hidden])


def _noise(head: DraftHead, tokens: list[int], features: Tensor, expected: Tensor) -> float:
    """Return what rounding does to the head's output: features are rounded otherwise."""
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, features.shape, generator=generator) * 2 - 1
    factors = 1 + torch.finfo(head.dtype).eps * signs.to(features.device)
    otherwise = _plain(head, tokens, (features * factors).to(features.dtype))
    return worst_difference(otherwise[None, -VERIFIED:], SLOTS[:1], expected)


def _in_slabs(head: DraftHead, tokens: list[int], features: Tensor) -> Tensor:
    """Return the output (b, q, D) for each row's last q tokens, after a prefill of the others."""
    rows = len(SLOTS)
    wanted = Features(head.settings.hidden_size, lambda states: states[0])
    store = FeatureStore(wanted, rows, len(tokens), head.dtype, head.device)
    store.values[:] = features
    cached = CachedHead(head, rows, max(map(max, SLOTS)) + 1, None, store)
    cached.prefill(make_feed(head, tokens, SLOTS, prefill=True))
    cached.forward(make_feed(head, tokens, SLOTS, prefill=False), logits_to_keep=VERIFIED)
    assert cached.own is not None
    return cached.own.float()
