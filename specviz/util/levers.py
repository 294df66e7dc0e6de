"""What a run may do to take less memory.

The memory model and the engine both read it, and neither knows the other. Nothing is done here.
"""

from dataclasses import dataclass

from specviz.util.validate import require_bool, require_choice, require_int

OFF = "pass an int, or None to leave it"


@dataclass(frozen=True)
class Levers:
    """Ways to take less memory that leave the text unchanged. Each costs some time.

    With coupling="rejection", `draft_window` draws another sample of the same distribution, since
    it changes what the draft model proposes.

    Attributes:
        prefill_tokens: the most tokens that one forward of a prefill reads. Longer prompts are read
            in chunks, and a forward takes fewer rows. None: a forward takes all rows of similar
            length. deterministic=True has a shape of its own and takes no notice.
        draft_window: the slots of K/V that a draft model keeps of a row. When they are full, it
            reads the later half of them again. None: all of the row. Draft heads and trees keep all
            of it.
        draft_logits: whether the draft's logits are kept until the next round replaces them. They
            are needed by coupling="rejection", and by selectors that score drafts.
        accept_rows: how many rows are judged at a time; None: all of them.
        slab_block: the slabs of K/V grow by so many slots as rows get longer. None: they have room
            for the longest row from the beginning.
        state: what the target keeps where its layers are recurrences: "states", that after each
            token of a round, or "inputs", one state a row and what the recurrence has read since,
            which it reads again. "auto": inputs, where the states of all rows would take more than
            the target's weights. Layers whose class calls no rule that specviz knows keep states,
            and so do static batches (refill=False) and runs with synthetic drafts.

    Raises:
        ValueError: a value is of the wrong kind.
    """

    prefill_tokens: int | None = None
    draft_window: int | None = None
    draft_logits: bool = True
    accept_rows: int | None = None
    slab_block: int | None = None
    state: str = "auto"

    def __post_init__(self) -> None:
        for name in ("prefill_tokens", "draft_window", "accept_rows", "slab_block"):
            value = getattr(self, name)
            if value is not None:
                # A plain int, also where numpy's was passed.
                object.__setattr__(self, name, require_int(name, value, remedy=OFF))
        require_bool("draft_logits", self.draft_logits)
        require_choice("state", self.state, ("auto", "states", "inputs"))

    def prefill_shape(self, rows: int, longest: int) -> tuple[int, int]:
        """Return how many rows and tokens a row one forward of a prefill reads at most.

        Args:
            rows: that are to be read.
            longest: tokens to read in the longest of them.
        """
        if self.prefill_tokens is None or longest == 0:
            return rows, longest
        # Fewer rows come first: a row's K/V is copied for as long as it is in a forward.
        if longest >= self.prefill_tokens:
            return 1, self.prefill_tokens
        return min(rows, self.prefill_tokens // longest), longest


NONE = Levers()
