"""What both sides of an audit wrote after one prompt.

Contract: plain values. Not known here: how they were compared, and models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specviz.checks.audit.output import Output
from specviz.checks.scores import Token

EQUAL, PARTED, SHORTER, LONGER = "equal", "parted", "shorter", "longer"


@dataclass(frozen=True, eq=False)
class Duo:
    """What both sides wrote after one prompt.

    Attributes:
        reference, candidate: as they were read.
        prompt_ids: of the prompt; None where unknown.
        ours, theirs: the tokens that are compared, the candidate's and the reference's: ids, texts
            of tokens, or characters.
        unit: "token" or "character".
        is_retokenised: whether the tokens are those of a tokenizer that read the texts again.
        how: EQUAL, PARTED, SHORTER or LONGER, as the candidate is.
        at: the first index of `ours` and `theirs` that differs, or where the shorter one ends; None
            where they are equal. With a fault, where that is.
        our_ends, their_ends: the ids of which one stands behind the text, if it shows none; empty
            where that is not to be judged.
        is_open: whether it is not known what ended the candidate's text, behind where they part.
        fault: what is wrong with the candidate, whatever the target says; "" if nothing.
        unjudged: why it cannot be judged whether the texts are right; "" if it can.
    """

    reference: Output
    candidate: Output
    prompt_ids: tuple[int, ...] | None
    ours: Sequence[Token]
    theirs: Sequence[Token]
    unit: str
    is_retokenised: bool
    how: str
    at: int | None
    our_ends: tuple[int, ...] = ()
    their_ends: tuple[int, ...] = ()
    is_open: bool = False
    fault: str = ""
    unjudged: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether `ours` and `theirs` are the tokens that the decoders wrote."""
        return self.unit == "token" and not self.is_retokenised

    @property
    def is_chat(self) -> bool:
        """Whether the prompt is known as messages."""
        return bool(self.candidate.messages or self.reference.messages)

    @property
    def is_parted(self) -> bool:
        """Whether the texts part at a token that can be judged."""
        return self.how == PARTED and not self.fault and not self.unjudged

    @property
    def has_ids(self) -> bool:
        """Whether the compared tokens are ids, which a target can score."""
        return all(isinstance(token, int) for token in (*self.ours[:1], *self.theirs[:1]))
