"""A phase of a recorded round in plain words, with its own numbers, for the batch and for each row. Knows no colours and no charts.

Contract: `Narrator` tells a phase in a few sentences, what matters most first, and in one phrase for each row. Rows are called by their
number in the batch, drafts are counted from 1. Texts of tokens occur only in what a violation says, spelled as Python literals.
"""

from collections.abc import Iterable

from specviz.checks.violations import Violation
from specviz.record.trace import Trace
from specviz.views.stepper.batchwords import BATCH_WORDS
from specviz.views.stepper.phrases import names
from specviz.views.stepper.rowwords import ROW_WORDS
from specviz.views.stepper.scene import Scene, Scenes

ROOM = 220  # letters for the sentences of a phase
_BROKEN = {
    "lengths": "lengths do not add up",
    "rectangle": "rows leave the rectangle",
    "positions": "positions are not the tokens' indices",
    "mask": "queries see the wrong slots",
    "kv": "the cache holds wrong K/V",
    "caches": "the draft's cache is not in step with the target's",
    "acceptance": "an accepted draft is not the target's choice",
    "bonus": "the token behind the accepted drafts is not the target's",
    "budget": "the budget is not kept",
    "eos": "EOS does not end the row",
}


class Narrator:
    """Tells the phases of a record, and the violations among `violations` where they happened. Raises ValueError if there is no record.

    judge: whether to say that a position will not be its token's index, and that a token is the target's own.
    """

    def __init__(
        self, trace: Trace, violations: Iterable[Violation] = (), *, judge: bool = True
    ) -> None:
        self._scenes = Scenes(trace, judge=judge)
        self._broken: dict[tuple[int, str], list[Violation]] = {}
        for violation in violations:
            self._broken.setdefault((violation.round, violation.phase), []).append(violation)
        self._scene: Scene | None = None

    def tell(self, round: int, phase: str) -> tuple[str, list[str]]:
        """The phase in about ROOM letters, and a phrase for each row. Raises ValueError when there is no such round."""
        if self._scene is None or self._scene.number != round:
            self._scene = self._scenes[round]
        scene, broken = self._scene, self._broken.get((round, phase), [])
        gist, *more = BATCH_WORDS[phase](scene)
        told = gist
        for part in (*_broken(broken), *more):
            told += f" {part}" if len(told) + len(part) < ROOM else ""
        rules: dict[int, dict[str, None]] = {}
        for violation in broken:
            rules.setdefault(violation.row, {})[violation.rule] = None
        phrases = (ROW_WORDS[phase](scene, row) for row in range(len(scene.rows)))
        return told, [
            phrase + (f"; broken: {', '.join(rules[row])}" if row in rules else "")
            for row, phrase in enumerate(phrases)
        ]


def _broken(found: list[Violation]) -> list[str]:
    """What is wrong, and its numbers in the row that comes first."""
    if not found:
        return []
    first = found[0]
    rows = sorted({violation.row for violation in found if violation.rule == first.rule})
    lead = f"Broken in {names(rows, 'row')}: {_BROKEN.get(first.rule, first.rule)}."
    others = dict.fromkeys(violation.rule for violation in found if violation.rule != first.rule)
    return [
        lead,
        *([f"Broken too: {', '.join(others)}."] if others else []),
        f"Row {first.row}: expected {first.expected}; found {first.found}.",
    ]
