"""Find the slot of each token, by one rule for the target's and the draft's slabs.

Contract: three ways to lay out a row.
- `Layout`: the token with index p lies at slot start + p. Rows aligned on the left have start 0.
  Rows aligned on the right have start L - n; the slots before are padding.
- `Columns`: all rows write the same columns, and rejected tokens stay behind as holes.
- `Ones`: like `Layout`, with a mask of ones and positions that count columns, as in code that lets
  the framework derive them.
Masks and positions come from these numbers, never from token ids. It knows no
models and no caches.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from specviz.engine.kv.transfer import to_device

NO_LIMIT = 2**31  # positions of a model that states no limit


class Layout:
    """Starts of R rows, on the device and mirrored on the host.

    Attributes:
        starts: host list, slot of each row's token 0.
        start: the same as an int64 tensor (R,).
        last_position: the largest position id that the models know.
    """

    def __init__(self, rows: int, device: torch.device, max_positions: int | None = None) -> None:
        self.starts = [0] * rows
        self.start = torch.zeros(rows, dtype=torch.long, device=device)
        self.last_position = (max_positions or NO_LIMIT) - 1

    def set_starts(self, starts: Sequence[int]) -> None:
        """Take new starts for the first len(starts) rows."""
        # Most rounds change none, and the copy to the device is a launch.
        if list(starts) != self.starts[: len(starts)]:
            self.starts[: len(starts)] = starts
            self.start[: len(starts)] = to_device(starts, self.start.device)

    def take(self, order: Sequence[int]) -> None:
        """Let row order[k] become row k, for the first len(order) rows."""
        self.set_starts([self.starts[row] for row in order])

    def pending(self, row: int, n: int) -> int:
        """Return the slot for the K/V of the row's pending token, the one with index n - 1."""
        return self.starts[row] + n - 1

    def slots(self, rows: Tensor, indices: Tensor) -> Tensor:
        """Return the slots (b, q) of token indices (b, q) in `rows` (b,)."""
        return self.start[rows, None] + indices

    def positions(self, rows: Tensor, indices: Tensor) -> Tensor:
        """Return the position ids (b, q): each token's index in its own row, whatever its slot."""
        return indices

    def tree_visible(self, rows: Tensor, pending: Tensor, seen: Tensor, window: int) -> Tensor:
        """Return what the nodes of trees attend to, bool (b, q, window).

        Drafts lie behind their row's pending token, in columns of which it is column 0.

        Args:
            pending: (b, 1), the index of each row's pending token.
            seen: bool (b, q, m), the columns that each query attends to.
        """
        committed = self.visible(rows, pending, window)  # (b, 1, w), up to the pending token
        slot = torch.arange(window, device=pending.device)
        column = slot - self.slots(rows, pending)  # (b, w)
        count = seen.shape[2]
        inside = (column >= 0) & (column < count)
        index = column.clamp(0, count - 1)[:, None].expand(-1, seen.shape[1], -1)
        # The pending token's own column is in `seen`, too.
        return torch.where(inside[:, None], seen.gather(2, index), committed)

    def visible(self, rows: Tensor, indices: Tensor, window: int) -> Tensor:
        """Return which of the first `window` slots each query attends to, bool (b, q, window).

        A query attends to its own row's tokens up to itself.
        """
        slot = torch.arange(window, device=indices.device)
        first = self.start[rows, None, None]  # (b, 1, 1)
        own = first + indices[:, :, None]  # (b, q, 1)
        # The first half hides padding, the second what comes later. That includes rejected drafts
        # of earlier rounds, which still lie behind the row's end.
        return (first <= slot) & (slot <= own)


class Ones(Layout):
    """A mask that hides only later slots, and positions that are columns.

    So padding is attended to, and it counts in the positions.
    """

    def positions(self, rows: Tensor, indices: Tensor) -> Tensor:
        """Return the columns (b, q), clamped to the model's last position."""
        return self.slots(rows, indices).clamp(max=self.last_position)

    def visible(self, rows: Tensor, indices: Tensor, window: int) -> Tensor:
        return torch.arange(window, device=indices.device) <= self.slots(rows, indices)[:, :, None]


class Columns(Layout):
    """All rows write the same columns; a rejected column stays in the cache as a hole that the mask
    leaves out.

    Attributes:
        frontier: the column where every row's pending token goes next; all rows share it.
        held: (R, T + 2 width) int64, index of the token at each slot, -1 in padding and holes; a
            little wider than the slabs, since it looks ahead.
        at: the same shape, the slot of each index.
        by_column: whether positions are derived from columns, holes included, instead of from the
            tokens' indices.
    """

    def __init__(
        self,
        rows: int,
        slots: int,
        width: int,
        device: torch.device,
        by_column: bool,
        max_positions: int | None,
    ) -> None:
        super().__init__(rows, device, max_positions)
        self.frontier = 0
        self.by_column = by_column
        # Two tensors, one for each direction, since holes rule out slot = start + index. `held`
        # makes masks, `at` says where to write.
        self.held = torch.full((rows, slots + 2 * width), -1, device=device)
        self.at = torch.zeros(rows, slots + 2 * width, dtype=torch.long, device=device)
        self._ahead = torch.arange(width, device=device)  # pending token and drafts

    def enter(self, row: int, n: int) -> None:
        """Lay out a prompt of n tokens with its last one, the pending token, at the frontier."""
        start = self.frontier - (n - 1)
        self.set_starts([*self.starts[:row], start])
        self.held[row] = -1
        self.held[row, start : self.frontier] = torch.arange(n - 1, device=self.held.device)
        self.at[row, : n - 1] = torch.arange(start, self.frontier, device=self.held.device)
        self._look_ahead(slice(row, row + 1), to_device([n], self.at.device), self.frontier)

    def advance(
        self,
        lengths: Sequence[int],
        gained: Sequence[int],
        frontier: int,
        paths: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Turn rejected columns into holes, and let pending tokens go to the new `frontier`.

        Args:
            lengths: n of each row.
            gained: tokens of each row that stay: its pending token and its accepted drafts.
            paths: by row, the columns behind the old frontier of the accepted drafts of a tree.
        """
        rows, width = slice(0, len(lengths)), len(self._ahead)
        n, kept = to_device([lengths, gained], self.at.device)  # (b,) each
        # The round wrote the pending token and K drafts from the frontier on. Of a chain, the first
        # `gained` columns stay: that token and the accepted drafts. The target's own token is
        # pending now and has no column yet.
        written = self.held[rows, self.frontier : self.frontier + width]  # (b, width), a view
        written.masked_fill_(self._ahead >= kept[:, None], -1)
        for row, path in (paths or {}).items():
            count = gained[row] - 1
            if count > 0:
                self._keep_path(row, lengths[row] - 1 - gained[row], path[:count])
        self._look_ahead(rows, n, frontier)
        self.frontier = frontier

    def _keep_path(self, row: int, pending: int, path: Sequence[int]) -> None:
        """Note that the drafts behind index `pending` stay in the columns of the path."""
        columns = to_device([self.frontier + column for column in path], self.at.device)
        indices = torch.arange(pending + 1, pending + 1 + len(path), device=self.at.device)
        self.held[row, self.frontier + 1 : self.frontier + len(self._ahead)] = -1
        self.held[row, columns] = indices
        self.at[row, indices] = columns

    def shift(self, rows: int, columns: int) -> None:
        """Drop the first `columns` columns, which hold padding, of the first `rows` rows."""
        self.held = self.held.roll(-columns, 1)
        self.held[:, -columns:] = -1
        self.at -= columns
        self.frontier -= columns
        self.set_starts([start - columns for start in self.starts[:rows]])

    def _look_ahead(self, rows: slice, n: Tensor, frontier: int) -> None:
        """Note where the pending tokens and the drafts of the next round go, for n (b,) tokens."""
        # Before they are fed: masks and slots of a round are made from these notes.
        indices = n[:, None] - 1 + self._ahead  # (b, width)
        columns = frontier + self._ahead
        self.held[rows, frontier : frontier + len(columns)] = indices
        self.at[rows].scatter_(1, indices, columns.expand_as(indices))

    def take(self, order: Sequence[int]) -> None:
        super().take(order)
        rows = to_device(order, self.at.device)
        self.held[: len(order)] = self.held[rows]
        self.at[: len(order)] = self.at[rows]

    def pending(self, row: int, n: int) -> int:
        return self.frontier

    def slots(self, rows: Tensor, indices: Tensor) -> Tensor:
        return self.at[rows].gather(1, indices)

    def positions(self, rows: Tensor, indices: Tensor) -> Tensor:
        """Return the tokens' indices, or with `by_column` the columns since the row's first token.

        The latter are clamped to the model's last position.
        """
        if not self.by_column:
            return indices
        columns = self.slots(rows, indices) - self.start[rows, None]
        return columns.clamp(max=self.last_position)

    def visible(self, rows: Tensor, indices: Tensor, window: int) -> Tensor:
        held = self.held[rows, None, :window]  # (b, 1, w)
        return (held >= 0) & (held <= indices[:, :, None])
