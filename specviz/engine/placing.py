"""From tokens to a `Feed`: where the layout puts them, and what they attend to.

It knows rows and their layout, but no models and no caches.
"""

import torch
from torch import Tensor

from specviz.engine.batch import Batch
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.layout import Layout


def place(
    batch: Batch,
    layout: Layout,
    rows: Tensor,
    tokens: Tensor,
    indices: Tensor,
    window: int,
    valid: Tensor,
) -> Feed:
    """Return a feed of tokens (b, q) at their indices (b, q) in `rows` (b,); see `Feed`."""
    # A slot says where K/V lies, a position how far the model takes two tokens to be apart.
    # Padding and holes take slots but no positions, so that a row reads as it would alone.
    slots = layout.slots(rows, indices)  # (b, q)
    positions = layout.positions(rows, indices)  # (b, q)
    visible = layout.visible(rows, indices, window)  # (b, q, w)
    return Feed(rows, _requests(batch), tokens, indices, positions, slots, visible, valid)


def place_nodes(
    batch: Batch,
    layout: Layout,
    tokens: Tensor,
    columns: Tensor,
    depths: Tensor,
    seen: Tensor,
    nodes: Tensor,
    window: int,
) -> Feed:
    """Return a feed of nodes of trees, (b, q) tokens; see `State.feed_nodes`."""
    rows = batch.index
    _, pending = batch.last_tokens(1)  # (b, 1)
    indices = pending + depths
    return Feed(
        rows=rows,
        requests=_requests(batch),
        tokens=tokens,
        indices=indices,
        positions=layout.positions(rows, indices),
        slots=layout.slots(rows, pending + columns),
        visible=layout.tree_visible(rows, pending, seen, window),
        valid=torch.ones_like(tokens, dtype=torch.bool),
        nodes=nodes,
    )


def _requests(batch: Batch) -> list[int]:
    return [row.request.index for row in batch.live]
