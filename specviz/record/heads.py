"""Where a draft head's entries took their features from.

A draft head reads a token and a feature of the token before it: the hidden states of the target.
Those of committed tokens are known. Behind the pending token there are none, so a head reads its
own output in their place, or entries that stand for tokens which are not known yet.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace

# "none": no feature is read, as the target does, and a head for the token at index 0. "target": the
# target's own. "own": what the head predicted. "mask": the entry stands for a token that is not
# known yet, and its feature is one that was learned for all such entries.
SOURCES = ("none", "target", "own", "mask")
NONE, TARGET, OWN, MASK = (np.uint8(code) for code in range(len(SOURCES)))
# By `draft_kv` of the record, what an entry behind the pending token reads.
_BEYOND = {"provisional": OWN, "masks": MASK}
_DRAFT = PHASES.index("draft")
_HEAD = MODELS.index("draft")


class FeatureReads(NamedTuple):
    """What each entry of the table `feeds` reads beside its token; arrays (F,).

    Attributes:
        token: int32, the index of the token whose feature it reads, -1 where it reads none, or one
            that belongs to no token.
        source: uint8, one of the codes that SOURCES names.
    """

    token: Array
    source: Array


def head_of(meta: Mapping[str, Any]) -> str | None:
    """Return the name of the draft head that a run drafted with; None if it had none."""
    if meta.get("draft_kv", "kept") == "kept":
        return None
    # Trees grow from what their drafter's option `base` names.
    options = meta.get("drafter_options")
    base = options.get("base") if isinstance(options, Mapping) else None
    name: str | None = base if isinstance(base, str) else meta["drafter"]
    return name


def head_name(trace: Trace) -> str | None:
    """Return the name of the head that drafted, such as "eagle3 head"; None for other drafters."""
    head = head_of(trace.meta)
    return None if head is None else f"{head} head"


def feature_reads(trace: Trace) -> FeatureReads:
    """Return what each entry of the table `feeds` reads beside its token."""
    feeds = trace.feeds
    source = np.full(feeds["index"].shape, NONE)
    token = np.full(feeds["index"].shape, -1, np.int32)
    if head_name(trace) is None:
        return FeatureReads(token, source)
    of_head = feeds["model"] == _HEAD
    source[of_head & (feeds["index"] > 0)] = TARGET
    # Nodes count a row's drafts from 1. All that is fed in other phases is committed.
    beyond = of_head & (feeds["phase"] == _DRAFT) & (feeds["node"] > 0)
    source[beyond] = _BEYOND.get(trace.meta["draft_kv"], TARGET)
    reads = (source == TARGET) | (source == OWN)
    token[reads] = feeds["index"][reads] - 1
    return FeatureReads(token, source)
