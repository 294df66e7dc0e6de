"""What watching a decoder found, first line first.

Contract: the report prints as text, and its tables are data frames. Not known here: models, and how
anything was found.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pandas as pd

import specviz
from specviz.checks.watch.costs import Cost
from specviz.checks.watch.judge import Diagnosis, Tie
from specviz.checks.watch.requests import WatchedRequest
from specviz.record.trace import Trace

# Rules of what is decided behind the verification. All others are broken in its forward.
_DECIDED = ("acceptance", "bonus", "eos", "budget")


@dataclass(frozen=True)
class WatchReport:
    """The judgement of a decoder.

    Attributes:
        requests: what became of each prompt.
        faults: the first fault in the decoding of each text, the earliest first. A fault need not
            change a token.
        ties: tokens that are not the best ones by less than noise.
        costs: what was done for nothing.
        tolerance: how far log-probabilities may differ by rounding, in nats.
        rounds: {number of a forward: its round}.
        record: a record of the run; None if it fits none.
        why_no_record: why not.
        greedy: whether tokens were judged; False if forwards alone were.
        ignored: what the decoder may have applied to its scores and specviz does not, in a
            sentence. If tokens are not the target's best ones then, they are not judged.
        notes: what could not be seen, in sentences.
        wrong: the requests whose texts are not the target's own, near ties apart; none if tokens
            were not judged.
    """

    requests: Sequence[WatchedRequest] = field(repr=False)
    faults: Sequence[Diagnosis]
    ties: Sequence[Tie]
    costs: Sequence[Cost]
    tolerance: float
    rounds: dict[int, int] = field(repr=False)
    record: Trace | None = field(repr=False)
    why_no_record: str = field(default="", repr=False)
    greedy: bool = True
    ignored: str = ""
    notes: Sequence[str] = ()
    wrong: Sequence[int] = ()

    @property
    def trace(self) -> Trace:
        """A record of the run, for tables, checks and pictures.

        Raises ValueError if what the decoder did fits no record.
        """
        if self.record is None:
            raise ValueError(
                f"this run fits no record: {self.why_no_record}; go by what print(report) says, "
                "or audit fewer prompts"
            )
        return self.record

    @property
    def is_right(self) -> bool:
        """Whether no fault was found. All texts are the target's own then, near ties apart."""
        return not self.faults and not self.is_unjudged

    @property
    def is_unjudged(self) -> bool:
        """Whether tokens are not the target's best ones, and may be so rightly."""
        return bool(self.ignored) and not self.greedy

    @property
    def verdict(self) -> str:
        """The first line: right, near ties only, or what is broken, where and since when."""
        count = len(self.requests)
        if self.faults:
            first = self.faults[0]
            rule = f"{first.rule}: " if first.rule else ""
            return (
                f"wrong: {self._wrong_texts()}; row {first.row} (request {first.request}) since "
                f"round {first.round}, forward {first.forward}: {rule}{first.cause}"
            )
        if self.is_unjudged:
            texts = "1 text" if count == 1 else f"{count} texts"
            return f"not judged: which tokens {texts} should have; {self.ignored}"
        if self.ties:
            largest = max(tie.gap for tie in self.ties)
            return (
                f"near ties only: {len(self.ties)} tokens lie up to {largest:.2g} nats below the "
                f"best; noise explains {self.tolerance:.2g}"
            )
        if not self.greedy:
            return (
                f"right, as far as the forwards of {count} texts go; which tokens were drawn was "
                "not judged"
            )
        texts = "1 text is" if count == 1 else f"{count} texts are"
        return f"right: {texts} what the target itself writes"

    def _wrong_texts(self) -> str:
        """Say how many texts are wrong; or, if none is, in the decoding of how many faults are."""
        count = len(self.requests)
        if self.wrong or not self.greedy:
            return f"{len(self.wrong or self.faults)} of {count} texts"
        decoding = f"the decoding of {len(self.faults)} of {count} texts"
        # Of texts that were concluded from wrong forwards it is not known what was returned.
        if not all(request.is_known for request in self.requests):
            return decoding
        return f"{decoding}, though all texts are the target's own"

    @property
    def tokens_per_round(self) -> float:
        """How many tokens a row gained in a round, on average over all rounds of all requests."""
        tokens = sum(len(request.output) for request in self.requests)
        rounds = sum(len(request.rounds) for request in self.requests)
        return tokens / rounds if rounds else 0.0

    def __str__(self) -> str:
        lines = [self.verdict]
        if self.faults and self.faults[0].advice:
            lines.append(self.faults[0].advice)
        swapped = self.wrong and self.tokens_per_round < 1
        question = ": are target and draft swapped?" if swapped else ""
        lines.append(f"{self.tokens_per_round:.2f} tokens a round and row{question}")
        lines += [f"{cost.name}: {cost.sentence}" for cost in self.costs]
        lines += [f"not seen: {note}" for note in self.notes]
        if self.ignored and self.ignored not in self.verdict:
            lines.append(f"not judged: {self.ignored}")
        if self.record is None:
            lines.append("no record: what the decoder did fits none, so no picture can be drawn")
        return "\n".join(lines)

    def frame(self) -> pd.DataFrame:
        """Return a table of the faults, one a text, with the attributes of `Diagnosis`."""
        rows = [asdict(fault) for fault in self.faults]
        return pd.DataFrame(rows, columns=[each.name for each in fields(Diagnosis)])

    def step_through(self, **options: Any) -> Any:
        """Step through the run, opened at the first fault: its round, its row, and what broke.

        Args:
            options: arguments of `specviz.step_through`, which take precedence.

        Returns:
            A `StepThrough`.

        Raises:
            ValueError: an option cannot be used.
        """
        place: dict[str, Any] = {}
        if self.faults:
            first = self.faults[0]
            phase = "accept" if first.rule in _DECIDED else "verify"
            place = {"round": first.round, "phase": phase, "row": first.row}
        return specviz.step_through(self.trace, **(place | options))
