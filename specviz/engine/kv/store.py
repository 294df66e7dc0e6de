"""K/V that outlives a run: of texts that may go on later, under a limit of bytes.

Contract: an entry holds the K/V of the first tokens of one text. What was used longest ago is
dropped first, but nothing that the current run has yet to read. Not known here: runs, rows and
layouts.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from specviz.engine.kv.states import Snapshot


@dataclass(frozen=True)
class Kept:
    """What is kept of one text.

    Attributes:
        tokens: the tokens that have K/V in the target.
        states: by the cache's name, keys and values (n, H, D) layer by layer; n may be smaller for
            a draft model. "features" are the target's hidden states (n, F) that a head reads.
        snapshots: by the cache's name, n and the states after the n tokens, layer by layer; an
            empty list where layers keep none. They serve a text that begins with all n tokens.
    """

    tokens: tuple[int, ...]
    states: dict[str, list[Tensor]]
    snapshots: dict[str, tuple[int, list[Snapshot]]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        held = [tensor for tensors in self.states.values() for tensor in tensors]
        for _, snapshots in self.snapshots.values():
            held += [tensor for snapshot in snapshots for tensor in snapshot.values()]
        return sum(tensor.nbytes for tensor in held)

    def common(self, tokens: Sequence[int]) -> int:
        """Return how many of the first tokens are the same."""
        count = 0
        for own, other in zip(self.tokens, tokens, strict=False):
            if own != other:
                break
            count += 1
        return count


class KVStore:
    """Entries by name, the one used longest ago first.

    Attributes:
        limit_bytes: what all entries may take together; None for any amount.
        prompts_only: whether nothing is kept of what a run writes.
        names: of the texts of the current run, by the place of the request.
        restored_tokens, read_tokens: of the current run's texts, how many tokens needed no forward
            of the target when they entered, and how many did.
        dropped: how many entries were dropped, or not kept, for want of room.
    """

    def __init__(self, limit_bytes: int | None = None, prompts_only: bool = False) -> None:
        self.limit_bytes = limit_bytes
        self.prompts_only = prompts_only
        self.names: Sequence[str] = ()
        self.restored_tokens = 0
        self.read_tokens = 0
        self.dropped = 0
        self._entries: OrderedDict[str, Kept] = OrderedDict()
        self._waiting: set[str] = set()  # names of texts that have not entered the current run

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @property
    def nbytes(self) -> int:
        return sum(kept.nbytes for kept in self._entries.values())

    def begin(self, names: Sequence[str], limit_bytes: int | None) -> None:
        """Begin a run of these texts, with a new limit."""
        self.names = names
        self.limit_bytes = limit_bytes
        self.restored_tokens = 0
        self.read_tokens = 0
        self.dropped = 0
        for name in names:
            if name in self._entries:
                self._entries.move_to_end(name)
        self._waiting = set()
        self.make_room(0)
        self._waiting = set(names)

    def make_room(self, nbytes: int) -> bool:
        """Drop entries until `nbytes` more fit. Return whether they do; if not, none is dropped."""
        if self.limit_bytes is None:
            return True
        # An entry that is about to be read saves a text from being read again now. What has just
        # been written would be read later at the earliest, and an entry that is read makes room.
        free = [name for name in self._entries if name not in self._waiting]
        waiting = self.nbytes - sum(self._entries[name].nbytes for name in free)
        if waiting + nbytes > self.limit_bytes:
            return False
        while self.nbytes + nbytes > self.limit_bytes:
            del self._entries[free.pop(0)]
            self.dropped += 1
        return True

    def put(self, request: int, kept: Kept) -> None:
        """Keep an entry, for which there must be room."""
        self._entries[self.names[request]] = kept

    def take(self, request: int) -> Kept | None:
        """Return the entry of a request's text and forget it; None if there is none."""
        self._waiting.discard(self.names[request])
        return self._entries.pop(self.names[request], None)

    def forget(self, name: str) -> None:
        """Drop an entry, if there is one of that name."""
        self._entries.pop(name, None)
