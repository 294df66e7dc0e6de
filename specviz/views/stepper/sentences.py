"""A phase of a recorded round in words, with its own numbers, for the batch and for each row.

Contract: `Narrator` describes a phase in a few sentences, the most important one first, and in one
phrase for each row. Rows are called by their number in the batch; drafts are counted from 1. Texts
of tokens occur only in descriptions of violations, as Python literals. Not known here: colours.
"""

from collections.abc import Iterable

from specviz.checks.violations import BROKEN, Violation
from specviz.record.schema import has_slots
from specviz.record.trace import Trace
from specviz.views.stepper import plainwords
from specviz.views.stepper.batchwords import BATCH_WORDS
from specviz.views.stepper.phrases import names
from specviz.views.stepper.rowwords import ROW_WORDS
from specviz.views.stepper.scene import Scene, Scenes

MAX_LETTERS = 220  # of the sentences about a phase


class Narrator:
    """Describes the phases of a record, and those of `violations` that belong to each.

    judge: whether to report that a position differs from its token's index, and to call a token
    the target's own.

    Raises ValueError if there is no record.
    """

    def __init__(
        self, trace: Trace, violations: Iterable[Violation] = (), *, judge: bool = True
    ) -> None:
        self._scenes = Scenes(trace, judge=judge)
        says_slots = has_slots(trace.meta)
        self._batch_words = BATCH_WORDS if says_slots else plainwords.BATCH_WORDS
        self._row_words = ROW_WORDS if says_slots else plainwords.ROW_WORDS
        self._violations: dict[tuple[int, str], list[Violation]] = {}
        for violation in violations:
            place = violation.round, violation.phase
            self._violations.setdefault(place, []).append(violation)
        self._scene: Scene | None = None

    def describe(self, round: int, phase: str) -> tuple[str, list[str]]:
        """Return the sentences about a phase, and a phrase for each row.

        Sentences that would exceed MAX_LETTERS are left out, except the first one.

        Raises ValueError when there is no such round.
        """
        # The phases of a round are asked for one after another and share its scene.
        if self._scene is None or self._scene.number != round:
            self._scene = self._scenes[round]
        scene = self._scene
        violations = self._violations.get((round, phase), [])
        text, *more = self._batch_words[phase](scene)
        # What is violated goes before whatever else there is to say.
        for sentence in (*_violated(violations), *more):
            if len(text) + len(sentence) < MAX_LETTERS:
                text += f" {sentence}"
        rules: dict[int, dict[str, None]] = {}  # by row, each rule once
        for violation in violations:
            rules.setdefault(violation.row, {})[violation.rule] = None
        phrases = []
        for row in scene.rows:
            phrase = self._row_words[phase](scene, row)
            if row.number in rules:
                phrase += f"; violated: {', '.join(rules[row.number])}"
            phrases.append(phrase)
        return text, phrases


def _violated(violations: list[Violation]) -> list[str]:
    """Return which invariants are violated, and the numbers of the first violation."""
    if not violations:
        return []
    first = violations[0]
    rows = sorted({each.row for each in violations if each.rule == first.rule})
    sentences = [f"Violation in {names(rows, 'row')}: {BROKEN[first.rule]}."]
    others = dict.fromkeys(each.rule for each in violations if each.rule != first.rule)
    if others:
        sentences.append(f"Also violated: {', '.join(others)}.")
    sentences.append(f"Row {first.row}: {first.expected}; {first.found}.")
    return sentences
