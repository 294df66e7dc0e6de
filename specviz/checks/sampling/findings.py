"""What a test of draws found.

Contract: plain values. Not known here: how it was found.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SamplingFinding:
    """One test whose evidence exceeds what chance allows.

    Attributes:
        test: its name.
        sentence: what was found, where and by how much.
        log_evidence: the natural logarithm of the evidence, after the correction for all tests.
        row: the row of the batch; None for several.
        place: the new token, from 0; None for several.
        prompt, prefix: the prompt and the new tokens before; None for several.
        token: what was drawn too often or too rarely; None if the test is of no single token.
        expected, observed: its chance and its share.
        draws: how many draws the share is of.
    """

    test: str
    sentence: str
    log_evidence: float
    row: int | None = None
    place: int | None = None
    prompt: tuple[int, ...] | None = None
    prefix: tuple[int, ...] | None = None
    token: int | None = None
    expected: float = math.nan
    observed: float = math.nan
    draws: int = 0

    @property
    def odds(self) -> str:
        """The chance that a right decoder gives as much evidence, at most, in words."""
        return odds_of(self.log_evidence)


def odds_of(log_evidence: float) -> str:
    """Return 1 / evidence as "1 in 10^9"; "0" where p rules out what was drawn."""
    if math.isinf(log_evidence):
        return "0"
    if log_evidence <= math.log(10):
        return f"{min(math.exp(-log_evidence), 1.0):.2g}"
    return f"1 in 10^{int(log_evidence / math.log(10))}"
