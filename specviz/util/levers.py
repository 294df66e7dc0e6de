"""What a run may do to take less memory.

The memory model and the engine both read it, and neither knows the other. Nothing is done here.
"""

from dataclasses import dataclass

from specviz.util.validate import require_bool, require_choice, require_int


@dataclass(frozen=True)
class Levers:
    """Ways to take less memory that leave the text unchanged. Each costs some time.

    Attributes:
        prefill_tokens: the most tokens that one forward of a prefill reads. Longer prompts are read
            in chunks, and a forward takes fewer rows. None: a forward takes all rows of similar
            length. deterministic=True has a shape of its own and takes no notice.
        keep_draft: whether the draft model's (or head's) K/V is kept between rounds. If not, it
            reads every row's whole text again before it drafts.
        state: what the target keeps where its layers are recurrences: "states", that after each
            token of a round, or "inputs", one state a row and what the recurrence has read since,
            which it reads again. "auto": inputs, where the states of all rows would take more than
            the target's weights. Layers whose class calls no rule that specviz knows keep states,
            and so do static batches (refill=False) and runs with synthetic drafts.

    Raises:
        ValueError: a value is of the wrong kind.
    """

    prefill_tokens: int | None = None
    keep_draft: bool = True
    state: str = "auto"

    def __post_init__(self) -> None:
        if self.prefill_tokens is not None:
            remedy = "pass an int, or None to leave it"
            # A plain int, also where numpy's was passed.
            tokens = require_int("prefill_tokens", self.prefill_tokens, remedy=remedy)
            object.__setattr__(self, "prefill_tokens", tokens)
        require_bool("keep_draft", self.keep_draft)
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
