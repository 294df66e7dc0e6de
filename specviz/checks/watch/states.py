"""Find where a row goes on from states that are not its own.

Contract: states are recognised by their prints, as those that an earlier forward left, or by their
distance from those that the model itself has after each token of a text. Not known here: logits.
"""

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.checks.watch.inputs import Difference
from specviz.checks.watch.mixers import KINDS, states_of
from specviz.checks.watch.requests import Part, WatchedRequest, common
from specviz.engine.kv.states import find_mixers
from specviz.util.text import count


class States:
    """What the rows of one model's forwards went on from.

    Args:
        parts: the rows of its forwards.
        requests: all requests.
        model: the model, for what it has after each token; None if prints are to be enough.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        requests: Sequence[WatchedRequest],
        model: PreTrainedModel | None = None,
    ) -> None:
        self._parts = parts
        self._requests = requests
        self._model = model
        self._numbers = [] if model is None else sorted(find_mixers(model).values())
        self._after: dict[tuple[int, ...], dict[str, Tensor]] = {}  # by text
        self._left: dict[str, dict[int, list[Part]]] = {kind: {} for kind in KINDS}
        for part in parts:
            for kind in KINDS:
                mark = _print(part, "after", kind)
                if mark:
                    self._left[kind].setdefault(mark, []).append(part)

    def first(self, part: Part, text: Sequence[int]) -> Difference | None:
        """Return the first difference in a row's forwards up to this one; None for none."""
        own = (each for each in self._parts if each.request == part.request)
        for each in sorted(own, key=lambda each: each.number):
            found = self.at(each, text) if each.number <= part.number else None
            if found is not None:
                return found
        return None

    def at(self, part: Part, text: Sequence[int]) -> Difference | None:
        """Return what is wrong with the states that a part goes on from; None if nothing is."""
        columns = range(part.columns[0] if part.columns and self._model is not None else 0)
        if self._reads(part, columns) and any(self._left.values()):
            cause = (
                f"{count(len(columns), 'column')} of padding before token {part.index} "
                "were read into the states"
            )
            return Difference("state", cause, part.number, part.index, is_left=True)
        wrong = {}
        for kind in KINDS:
            mark = _print(part, "before", kind)
            if self._left[kind] and mark is not None and not self._is_due(part, kind, mark, text):
                wrong[kind] = mark
        if not wrong:
            return None
        kind, mark = next(iter(wrong.items()))
        which = (
            "states" if wrong.keys() == {k for k in KINDS if self._left[k]} else f"{kind} states"
        )
        source = self._source(part, kind, mark, text)
        if source is not None:
            padding = source.seen.tokens.shape[1] - len(source.columns)
            why = f", since {count(padding, 'column')} of padding were read, too" if padding else ""
            cause = (
                f"the {which} left after token {part.index - 1} are not those that the model has "
                f"after the row's tokens{why}"
            )
            return Difference("state", cause, source.number, part.index - 1, is_left=True)
        due = f"those after token {part.index - 1}" if part.index else "none, since the row begins"
        cause = (
            f"the {which} that token {part.index} goes on from should be {due}, and are "
            f"{self._named(part, kind, mark, text)}"
        )
        return Difference("state", cause, part.number, part.index)

    def source(self, part: Part, text: Sequence[int]) -> tuple[int, int] | None:
        """Return the token whose states a part goes on from, as request and index.

        Index -1 stands for none. The result is None where it is not known, or where it is not the
        same for all kinds.
        """
        found = {self._source_of(part, kind, text) for kind in KINDS if self._left[kind]}
        return found.pop() if len(found) == 1 else None

    def _source_of(self, part: Part, kind: str, text: Sequence[int]) -> tuple[int, int] | None:
        mark = _print(part, "before", kind)
        if not mark:
            return None if mark is None else (part.request, -1)
        found = self._read_by(part, kind, mark, text)
        return None if found is None or found[1] < 0 else found[1:]

    def _read_by(
        self, part: Part, kind: str, mark: int, text: Sequence[int]
    ) -> tuple[Part | None, int, int] | None:
        """Return what read the token whose states these are, its request and its index."""
        earlier = [each for each in self._left[kind].get(mark, ()) if each.number < part.number]
        own = [each for each in earlier if each.request == part.request]
        for each in reversed(own or earlier):
            return each, each.request, each.index + len(each.columns) - 1
        if self._model is None:
            return None
        # What was read before the last token of a forward was not left by any.
        read = (each for each in reversed(self._parts) if each.number < part.number)
        for each in islice((each for each in read if each.request == part.request), 2):
            at = self._nearest(part, kind, [*text[: each.index], *each.tokens])
            if at is not None:
                return each, part.request, at
        for number, request in enumerate(self._requests):
            at = self._nearest(part, kind, request.tokens)
            if at is not None:
                return None, number, at
        return None

    def _reads(self, part: Part, columns: range) -> bool:
        """Return whether layers with states read all of these columns of a row."""
        read = part.seen.forward.read
        return bool(columns) and (read is None or bool(read[part.row, list(columns)].all()))

    def _is_due(self, part: Part, kind: str, mark: int, text: Sequence[int]) -> bool:
        """Return whether states with this print are those that a part should go on from."""
        if not part.index:
            return not mark
        if self._model is not None:
            return self._nearest(part, kind, text) == part.index - 1
        # Of states that no forward has left nothing is known.
        is_known = bool(mark) and mark in self._left[kind]
        return not is_known or self._source(part, kind, mark, text) is not None

    def _source(self, part: Part, kind: str, mark: int, text: Sequence[int]) -> Part | None:
        """Return the part that left states with this print behind the row's token before."""
        for each in self._left[kind].get(mark, ()):
            is_before = each.number < part.number and each.index + len(each.columns) == part.index
            if is_before and each.tokens == list(text[each.index : part.index]):
                return each
        return None

    def _nearest(self, part: Part, kind: str, text: Sequence[int]) -> int | None:
        """Return the index of the text's token whose states these are; None for none."""
        found = part.seen.forward.before[kind]
        assert found is not None
        assert self._model is not None
        if tuple(text) not in self._after:
            self._after[tuple(text)] = self._after_each(self._model, text)
        known = self._after[tuple(text)][kind]  # (n, size)
        off = (known - found.sketches[part.row]).norm(dim=1)
        at = int(off.argmin())
        limit = torch.finfo(self._model.dtype).eps ** 0.5
        return at if off[at] <= limit * known[at].norm() else None

    @torch.inference_mode()
    def _after_each(self, model: PreTrainedModel, text: Sequence[int]) -> dict[str, Tensor]:
        """Return the sketches (n, size) of the states after each token, read one by one."""
        cached = None
        found: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
        for token in text:
            ids = torch.tensor([[token]], device=model.device)
            cached = model(input_ids=ids, past_key_values=cached, use_cache=True).past_key_values
            states = states_of(cached.layers, self._numbers, 1)
            for kind in KINDS:
                found[kind].append(states[kind].sketches[0])
        return {kind: torch.stack(each) for kind, each in found.items()}

    def _named(self, part: Part, kind: str, mark: int, text: Sequence[int]) -> str:
        """Say what states are."""
        if not mark:
            return "none"
        found = self._read_by(part, kind, mark, text)
        if found is None:
            return "states that no forward left"
        source, request, index = found
        if source is not None and source.request < 0:
            return f"those that forward {source.number} left in row {source.row}"
        if source is None or request != part.request:
            return f"those of request {request} after its token {index}"
        return _after(source, index, text)


def _after(part: Part, last: int, text: Sequence[int]) -> str:
    """Name the states after a token that a part of the same request has read."""
    rejected = last + 1 - part.index - common(part.tokens, text[part.index :])
    drafts = f" and {count(rejected, 'rejected draft')}" if rejected > 0 else ""
    return f"those after token {last - max(rejected, 0)}{drafts}, read in forward {part.number}"


def _print(part: Part, when: str, kind: str) -> int | None:
    """Return the print of a row's states before or after a forward; None if it is not known."""
    states = getattr(part.seen.forward, when).get(kind)
    return None if states is None else int(states.prints[part.row])
