"""The size of a draft head, which drafts from the hidden states of its target.

Not known here: weights, running models.
"""

from dataclasses import dataclass

from specviz.costs.shapes import ModelShape, itemsize


@dataclass(frozen=True)
class HeadShape(ModelShape):
    """The sizes of a head: those of its one layer, and what it adds to its target.

    Attributes:
        own_parameters: all of the head's own. The target's embedding and LM head are not among
            them.
        read: how many values of the target's hidden states it reads of a token.
        features: how many values of them it keeps of each committed token.
        entry: how many values its attention reads of a token: its feature, and the embedding where
            that counts.
        attends: whether it keeps K/V.
        parallel: whether one forward gives all drafts of a round.
    """

    own_parameters: int = 1
    read: int = 1
    features: int = 1
    entry: int = 1
    attends: bool = True
    parallel: bool = False

    @property
    def parameters(self) -> int:
        return self.own_parameters

    def kv_bytes_per_slot(self, dtype: str) -> int:
        """Return the bytes of K and V in one slot of one row; 0 for a head without attention."""
        return super().kv_bytes_per_slot(dtype) if self.attends else 0

    def kept_bytes(self, dtype: str, rows: int, tokens: int) -> int:
        """Return the bytes of what is kept of the target's hidden states."""
        return rows * tokens * self.features * itemsize(dtype)

    @property
    def entry_values(self) -> int:
        """Values that a forward of the head needs of a token beside those of any layer."""
        # Its feature as it is kept and as it is read, the embedding, and both side by side.
        return 2 * self.features + (self.entry - self.hidden) + self.entry
