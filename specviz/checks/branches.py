"""How the drafts of a record branch, for the rules: who follows whom, and what was accepted.

Contract: reads the table `rows` alone. Column 0 of a row in a round is its pending token, column
j + 1 its draft j, as in `target_top_ids`. A chain is the tree in which each draft follows the one
before; `is_tree` names the entries that are none. Not known here: the rules.
"""

from functools import cached_property

import numpy as np

from specviz.record.schema import Array
from specviz.record.trace import Trace
from specviz.record.trees import ancestors, branching, depths


class Branches:
    """Trees of N entries of the table `rows`.

    Attributes:
        is_tree: bool (N,), whether the drafts of an entry branch, those among them that the draft
            model read and that were not proposed in the end.
        parents: (N, K), the column that each draft follows.
        drafted: (N, 1), how many drafts there are.
        may_branch: bool (N,), whether the drafts of an entry may have been proposed as a tree. A
            tree that happens to be a chain is judged and scored as a tree all the same.
    """

    def __init__(self, trace: Trace) -> None:
        self._rows = trace.rows
        parents = trace.rows["parents"].astype(np.int64)
        self._number = np.arange(parents.shape[1])
        self.drafted = trace.rows["drafted"].astype(np.int64)[:, None]
        is_drafted = self._number < self.drafted
        self.is_tree: Array = branching(trace.rows) | _has_read_more(trace)
        self.may_branch: Array = self.is_tree | _drafter_branches(trace)
        # Behind what was drafted nothing counts. As a chain it harms nothing.
        self.parents: Array = np.where(is_drafted, parents, self._number - 1) + 1

    @cached_property
    def any(self) -> bool:
        """Whether any drafts branch."""
        return bool(self.is_tree.any())

    @cached_property
    def depths(self) -> Array:
        """How many tokens each column is behind the pending one, (N, K+1)."""
        of_drafts = depths(self.parents - 1)
        return np.append(np.zeros((len(of_drafts), 1), np.int64), of_drafts, axis=1)

    @cached_property
    def ancestors(self) -> Array:
        """The columns on each column's branch, itself included, bool (N, K+1, K+1)."""
        return ancestors(self.parents - 1)

    def are_on_branch(self, entries: Array, columns: Array, held: Array) -> Array:
        """Return whether drafts (q, w) are on the branches that end in these columns (q,).

        A 0, which is not a draft, counts as one of the branch.

        Args:
            entries: (q,) of the table `rows`.
            held: (q, w), columns of the same entries.
        """
        last = self.parents.shape[1]
        on_branch = self.ancestors[entries, np.minimum(columns, last)]
        on_branch = np.append(on_branch, np.zeros((entries.size, 1), bool), axis=1)  # (q, K+2)
        # The record does not say what a draft follows that was not proposed in the end.
        on_branch |= columns[:, None] > self.drafted[entries]
        found: Array = np.take_along_axis(on_branch, np.minimum(held, last + 1), axis=1)
        return found | (held == 0)

    @cached_property
    def path(self) -> Array:
        """The accepted drafts' columns from the pending token's on, (N, K+1).

        Of a chain these are all columns in order. Behind the path of a tree they are -1.
        """
        path = self._rows["path"].astype(np.int64)
        is_accepted = self._number < self._rows["accepted"][:, None]
        of_tree = np.where(is_accepted & (path >= 0), path + 1, -1)
        columns = np.where(self.is_tree[:, None], of_tree, self._number + 1)
        return np.append(np.zeros((len(path), 1), np.int64), columns, axis=1)

    def along(self, values: Array, missing: int | float = -1) -> Array:
        """Return values (N, K+1, ...) of the columns on the path, `missing` behind its end."""
        at = np.maximum(self.path, 0)
        every = np.arange(len(at))[:, None]
        found: Array = values[every, at]
        is_behind = self.path < 0
        found[is_behind] = missing
        return found

    def drafts_along(self, values: Array, missing: int | float = -1) -> Array:
        """Return values (N, K) of the accepted drafts in order, `missing` behind them."""
        first = np.full((len(values), 1), missing, values.dtype)
        return self.along(np.append(first, values, axis=1), missing)[:, 1:]

    @cached_property
    def last(self) -> Array:
        """The column of the last accepted draft, (N,)."""
        accepted = self._rows["accepted"].astype(np.int64)
        return np.maximum(self.path[np.arange(len(accepted)), accepted], 0)

    @cached_property
    def is_next(self) -> Array:
        """Which verified drafts follow the last accepted one, bool (N, K)."""
        is_verified = self._number < self._rows["verified"][:, None]
        found: Array = (self.parents == self.last[:, None]) & is_verified
        return found

    def follow(self, choices: Array) -> tuple[Array, Array]:
        """Follow the target's choices (N, K+1) as far as there are verified drafts.

        Returns how many drafts that accepts (N,), and the column of the last one (N,).
        """
        rows = self._rows
        n, k = self.parents.shape
        every = np.arange(n)
        last = np.zeros(n, np.int64)
        for j in range(k):
            is_chosen = rows["drafts"][:, j] == choices[every, last]
            is_chosen &= (self.parents[:, j] == last) & (j < rows["verified"])
            last = np.where(is_chosen, j + 1, last)
        return self.depths[every, last], last


def _drafter_branches(trace: Trace) -> bool:
    """Return whether the drafter of a run makes trees, going by its name in older records."""
    by_name = trace.meta["drafter"] in ("tree", "static_tree")
    return bool(trace.meta.get("branches", by_name))


def _has_read_more(trace: Trace) -> Array:
    """Return for which entries of `rows` the draft model read drafts that were not proposed."""
    found = np.zeros(trace.rows["drafted"].size, bool)
    if trace.meta.get("draft_kv") == "masks":  # a block, which may be longer than what is drafted
        return found
    entry = trace.index.feed_rows
    drafted = np.append(trace.rows["drafted"], 0)[entry]
    found[entry[(entry >= 0) & (trace.feeds["node"] > drafted)]] = True
    return found
