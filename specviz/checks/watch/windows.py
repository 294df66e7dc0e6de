"""Find queries of layers with a window that do not see the last tokens of their row.

Contract: K/V of these layers is followed on its own, since their caches may keep other slots. Only
models are judged that have other layers, too, which see all tokens. Not known here: logits.
"""

from collections.abc import Collection, Sequence

import numpy as np

from specviz.checks.watch.capture import CapturedForward
from specviz.checks.watch.inputs import Difference
from specviz.checks.watch.origins import Origins, SeenForward
from specviz.checks.watch.requests import Part, WatchedRequest


class Windows:
    """What queries saw in the layers with a window.

    Args:
        forwards: of the model, in order.
        parts: the rows of its forwards.
        requests: all requests.
        width: to how many tokens the layers attend; None if there are no such layers.
    """

    def __init__(
        self,
        forwards: Sequence[CapturedForward],
        parts: Sequence[Part],
        requests: Sequence[WatchedRequest],
        width: int | None,
    ) -> None:
        self._width = width
        self._requests = requests
        self._origins = Origins()
        self._seen: dict[int, SeenForward] = {}
        self._parts = {part.place: part for part in parts}
        for forward in forwards if width else ():
            view = forward.narrow
            if view is not None and view.held is not None and view.seen is not None:
                self._seen[forward.number] = self._origins.read(view)

    def first(
        self, queries: Collection[tuple[int, int, int]], text: Sequence[int]
    ) -> Difference | None:
        """Return the first query that sees other tokens than it should; None for none.

        Args:
            queries: forward, row and place in its part, of each.
            text: the tokens that the row should have read.
        """
        for number, row, place in sorted(queries):
            found = self._at(self._parts[number, row], place, text)
            if found is not None:
                return found
        return None

    def _at(self, part: Part, place: int, text: Sequence[int]) -> Difference | None:
        seen = self._seen.get(part.number)
        if seen is None or self._width is None:
            return None
        visible = seen.seen[part.row, part.columns[place]]
        indices = [self._index(part, entry, text) for entry in seen.held[part.row, visible]]
        found = sorted(index for index in indices if index is not None)
        index = part.index + place
        due = list(range(max(index - self._width + 1, 0), index + 1))
        if found == due and len(found) == len(indices):
            return None
        sees = f"sees tokens {found[0]} to {found[-1]}" if found else "sees none"
        if len(found) < len(indices):
            sees += f" and {len(indices) - len(found)} slots without a token of the row"
        cause = (
            f"token {index} should see tokens {due[0]} to {index} in layers with a window of "
            f"{self._width}, and {sees}"
        )
        return Difference("window", cause, part.number, index)

    def _index(self, part: Part, entry: np.int64, text: Sequence[int]) -> int | None:
        """Return which token of the row's text an entry is; None if it is none."""
        if entry < 0:
            return None
        number, row, column = self._origins.where[entry]
        source = self._parts[number, row]
        if source.request < 0 or column not in source.columns:
            return None
        index = source.index + source.columns.index(column)
        before = self._requests[source.request].tokens[:index]
        is_own = source.request == part.request or before == list(text[:index])
        token = int(source.seen.tokens[row, column])
        return index if is_own and [token] == list(text[index : index + 1]) else None
