"""The target's features of every text of a record, computed again for a draft head.

Contract: they are kept by request and index while the target's forwards run again, those of
committed tokens and of accepted drafts.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specviz.engine.features import Features, FeatureStore
from specviz.engine.heads import DraftHead
from specviz.engine.heads.modules import shifted
from specviz.record.schema import Array
from specviz.record.trace import Trace


class TextFeatures:
    """The features of each request's tokens.

    Attributes:
        store: those that the run's own forwards compute, with one row for each request.
        fresh: by request, those (1, n, D) of a fresh forward of its text.
    """

    def __init__(self, trace: Trace, head: DraftHead) -> None:
        self._feeds = trace.feeds
        self._is_accepted = _accepted(trace)
        self.fresh: dict[int, Tensor] = {}
        self._head = head
        size = int(trace.feeds["index"].max(initial=0)) + 1
        wanted = Features(head.settings.hidden_size, self.select)
        self.store = FeatureStore(wanted, trace.num_requests, size, head.dtype, head.device)

    def select(self, hidden_states: Sequence[Tensor]) -> Tensor:
        """Return what the head keeps of the target's hidden states."""
        return self._head.fuse(self._head.select(hidden_states))

    def keep(self, entries: Array, features: Tensor | None) -> None:
        """Keep features (b, q, D), which `select` made, of entries (b, q) of the table `feeds`."""
        assert features is not None
        requests, indices = self._places(entries)
        kept = torch.from_numpy(self._is_accepted[entries]).to(features.device)
        self.store.values[requests[kept], indices[kept]] = features[kept].to(
            self.store.values.dtype
        )

    def before(self, entries: Array) -> Tensor:
        """Return the features (b, q, D) that entries (b, q) read, of the tokens before them."""
        requests, indices = self._places(entries)
        return self.store.before(requests[:, 0], indices, self._head.lag)

    def of_text(self, request: int) -> Tensor:
        """Return the features (1, n, D) that entries of each token of a request's text read."""
        fresh = self.fresh[request]
        return shifted(fresh) if self._head.lag else fresh

    def _places(self, entries: Array) -> tuple[Tensor, Tensor]:
        columns = [self._feeds[name][entries].astype(np.int64) for name in ("request", "index")]
        requests, indices = (torch.from_numpy(column) for column in columns)
        device = self.store.values.device
        return requests.to(device), indices.to(device)


def _accepted(trace: Trace) -> Array:
    """Return which entries (N,) of `feeds` are committed tokens or accepted drafts."""
    # Drafts of a tree share indices, so what a rejected one left must not replace another's.
    node = trace.feeds["node"].astype(np.int64)
    path = np.append(trace.rows["path"], -np.ones((1, trace.rows["path"].shape[1]), int), axis=0)
    on_path: Array = (path[trace.index.feed_rows] == node[:, None] - 1).any(1)
    return on_path | (node == 0)
