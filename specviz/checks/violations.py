"""What a broken invariant looks like: one sentence that an engineer can act on, and its numbers.

Contract: `Findings` gathers what the rules find, one `Violation` for each (round, phase, model,
row, rule), and returns them in the order in which things went wrong. Not known here: how a rule
works.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

import numpy as np
import pandas as pd

from specviz.record.schema import MODELS, PHASES, Array

# What holds, as docs/debug.md has it. What checks each of them is listed in `invariants`.
RULES = {
    "lengths": "a row gains the tokens that its request's output has, and the next round starts "
    "from there",
    "rectangle": "a row's tokens fit between its start and its pending slot; a row stays where it "
    "is until K/V of its tokens is moved or computed again; right-aligned rows end in one column",
    "positions": "the position id of a token is its index in its own row",
    "mask": "a query sees the slots of its own row's tokens up to itself, each once, and no other "
    "slot",
    "kv": "the slot of a token holds K/V of that token, computed with right position and mask; a "
    "verification feeds the pending token and the drafts that it verifies, each once",
    "caches": "the cache of the draft model or head holds what the target's does, and is fed each "
    "token once; a draft head reads accepted drafts again with true features",
    "state": "a row goes on from the states after the token before the first that it reads, which "
    "have read its own tokens up to there and no others",
    "window": "a query in a layer with a window sees the last tokens of its row, and in a layer "
    "with chunks those of its own chunk, whatever slots they are in",
    "acceptance": "an accepted draft is the target's choice and is emitted as it was drafted; a "
    "right draft is accepted or counted as discarded",
    "bonus": "the token after the accepted drafts comes from the target",
    "budget": "a request emits no more tokens than its budget, and ends with fewer only if it "
    "reached EOS",
    "eos": "nothing follows the first EOS of an output",
    "drafts": "a row drafts as many tokens as it says, and each is its drafter's choice: the first"
    " candidate of the draft model, or what prompt lookup finds in the text; drafts of one parent "
    "differ",
    "verification": "a round verifies no more drafts than its capacity, and those that the scores "
    "of its selector call for",
    "foresight": 'where drafts are judged by coins (coupling="rejection"), whether a draft is '
    "judged does not depend on which token it is",
    "scores": "log-probabilities are sorted, at most 0, and those of the tokens beside them",
    "schedule": "no round has more rows than the batch size; a pool's chosen rows are those of the"
    " batch, and its lengths, waiting times and decisions are right",
}
# What the step-through says where it does not hold.
BROKEN = {
    "lengths": "lengths do not add up",
    "rectangle": "rows are not aligned",
    "positions": "positions differ from the tokens' indices",
    "mask": "queries see the wrong slots",
    "kv": "the cache holds wrong K/V",
    "caches": "the cache of the draft model or head is not in step with the target's",
    "state": "a row goes on from the wrong states",
    "window": "a window holds the wrong tokens",
    "acceptance": "an accepted draft is not the target's choice",
    "bonus": "the token after the accepted drafts is not the target's",
    "budget": "the token budget is not kept",
    "eos": "EOS does not end the row",
    "drafts": "a draft is not its drafter's choice",
    "verification": "other drafts are verified than those that were selected",
    "foresight": "a draft decides whether it is judged",
    "scores": "log-probabilities do not fit their tokens",
    "schedule": "the batch is not the one that was chosen",
}
_ORDER = {name: place for place, name in enumerate(RULES)}
_NO_MODEL = -1


@dataclass(frozen=True)
class Violation:
    """One invariant that does not hold, for one row in one phase of one round.

    Attributes:
        round, phase: when it went wrong, which may be before the forward that suffers from it.
        model: "target" or "draft"; None if it is not about a cache.
        row, request: row of the batch, and the request that it served.
        rule: one of RULES.
        slot: the first slot that is affected; None if it is not about slots.
        count: how many slots, or tokens, are affected in this phase.
        expected, found: what should be so and what is so, each as a clause, for the first of them.
        head: the draft head that it is about; None if it is about a model, or about no cache.
    """

    round: int
    phase: str
    model: str | None
    row: int
    request: int
    rule: str
    slot: int | None
    count: int
    expected: str
    found: str
    head: str | None = None

    @property
    def message(self) -> str:
        """All of it in one line."""
        model = f", {self.model} model" if self.model else ""
        model = f", {self.head} head" if self.head else model
        row = f"row {self.row} (request {self.request})"
        unit = "token" if self.slot is None else "slot"
        count = f" ({self.count} {unit}s)" if self.count > 1 else ""
        where = f"round {self.round}, {self.phase} phase{model}, {row}"
        return f"{where}: {self.rule}: {self.expected}; {self.found}{count}"

    def __str__(self) -> str:
        return self.message


class Violations(list[Violation]):
    """`Violation`s in the order in which things went wrong; empty when all invariants hold.

    `print` shows a line for each, and one for each rule that was not checked.

    Attributes:
        unchecked: what was not checked and why; empty for a run that specviz recorded,
            unless its layers select tokens or have windows of several widths.
    """

    def __init__(self, found: Iterable[Violation] = (), unchecked: Iterable[str] = ()) -> None:
        super().__init__(found)
        self.unchecked = list(unchecked)

    def frame(self) -> pd.DataFrame:
        """Return one entry per violation; the columns are the attributes of `Violation`."""
        names = [field.name for field in fields(Violation)]
        return pd.DataFrame(map(asdict, self), columns=names)

    def first_per_request(self) -> "Violations":
        """Return the first violation of each request: the cause, of which later ones may follow."""
        firsts: dict[int, Violation] = {}
        for violation in self:
            firsts.setdefault(violation.request, violation)
        return Violations(firsts.values())

    def __str__(self) -> str:
        if not self.unchecked:
            return "\n".join(map(str, self)) or "all invariants hold"
        verdict = list(map(str, self)) or ["all invariants that were checked hold"]
        return "\n".join([*verdict, *(f"not checked: {each}" for each in self.unchecked)])

    def __repr__(self) -> str:
        return f"<{len(self)} violations, the first: {self[0]}>" if self else "[]"


class _Key(NamedTuple):
    """What findings of one violation share; the phase and model as numbers."""

    round: int
    phase: int
    model: int
    row: int
    request: int
    rule: str


@dataclass
class _Finding:
    expected: str
    found: str
    first_slot: int | None
    slots: Array
    tokens: int


class Findings:
    """Gathers violations.

    Findings that share round, phase, model, row and rule become one violation: the first gives the
    words, and all of their slots or tokens are counted.
    """

    def __init__(self, head: str | None = None) -> None:
        """Begin without findings. head: the name of the draft head, where one drafts."""
        self._head = head
        self._findings: dict[_Key, _Finding] = {}

    def add(
        self,
        rule: str,
        stage: int,
        row: int,
        request: int,
        expected: str,
        found: str,
        *,
        model: int | None = None,
        slots: Array | Sequence[int] = (),
        count: int = 1,
        evidence: bool = False,
    ) -> None:
        """Add what one rule found.

        Args:
            rule: one of RULES.
            stage: round * 5 + phase.
            row, request, expected, found: see `Violation`.
            model: its place in MODELS; None if it is not about a cache.
            slots: the slots that are affected.
            count: number of tokens that are affected, where there are no slots.
            evidence: whether to append `found` to the words of a violation that is known already.
        """
        round_number, phase = divmod(int(stage), len(PHASES))
        # Sorting needs a number also where no model is named.
        model_code = _NO_MODEL if model is None else int(model)
        key = _Key(round_number, phase, model_code, int(row), int(request), rule)
        if evidence and key in self._findings:
            self._findings[key].found += f"; {found}"
        affected = np.asarray(slots, np.int64)
        known = self._findings.setdefault(key, _Finding(expected, found, None, affected[:0], 0))
        if known.first_slot is None and affected.size:
            known.first_slot = int(affected[0])
        # Several queries of a forward may name the same slot; it counts once.
        known.slots = np.union1d(known.slots, affected)
        known.tokens += int(count)

    def has(self, rule: str, stage: int, row: int, request: int) -> bool:
        """Return whether a rule has found something in this row and phase, for any model."""
        number, phase = divmod(int(stage), len(PHASES))
        models = (_NO_MODEL, *range(len(MODELS)))
        keys = (_Key(number, phase, model, int(row), int(request), rule) for model in models)
        return any(key in self._findings for key in keys)

    def sorted(self, unchecked: Iterable[str] = ()) -> Violations:
        """Return the violations by round, phase, rule, row and model."""
        keys = sorted(self._findings, key=_time_order)
        found = (_violation(key, self._findings[key], self._head) for key in keys)
        return Violations(found, unchecked)


def _time_order(key: _Key) -> tuple[int, ...]:
    return key.round, key.phase, _ORDER[key.rule], key.row, key.model


def _violation(key: _Key, finding: _Finding, head: str | None) -> Violation:
    model = None if key.model == _NO_MODEL else MODELS[key.model]
    return Violation(
        round=key.round,
        phase=PHASES[key.phase],
        model=model,
        row=key.row,
        request=key.request,
        rule=key.rule,
        slot=finding.first_slot,
        count=finding.slots.size or finding.tokens,
        expected=finding.expected,
        found=finding.found,
        head=head if model == "draft" else None,
    )
