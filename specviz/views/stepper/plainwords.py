"""What a phase did, where a log does not say in which slots the target's K/V lies.

`sentences` takes these in place of `batchwords` and `rowwords`.
"""

from collections.abc import Callable

from specviz.record.schema import PHASES
from specviz.util.text import count
from specviz.views.stepper.batchrow import BatchRow
from specviz.views.stepper.batchwords import accepted_words, draft_words
from specviz.views.stepper.phrases import capitalised, names, row_names, span
from specviz.views.stepper.rowwords import draft_phrase, gained_phrase
from specviz.views.stepper.scene import Scene


def _schedule(scene: Scene) -> list[str]:
    if not scene.rows:
        return ["This round has no rows."]
    lengths = f"Rows have {span([row.length for row in scene.rows], 'token')}."
    new = [row for row in scene.rows if row.request in scene.new]
    if not new:
        return [f"No request entered: {count(len(scene.rows), 'row')} in the batch.", lengths]
    requests = capitalised(names(sorted(row.request for row in new), "request"))
    return [f"{requests} entered as {row_names(new)}.", lengths]


def _verify(scene: Scene) -> list[str]:
    drafts = sum(row.verified for row in scene.rows)
    read = f" and {count(drafts, 'draft')}" if drafts else ""
    return [f"The target read each row's pending token{read}."]


def _synchronise(scene: Scene) -> list[str]:
    return ["In which slots K/V lies was not logged."]


BATCH_WORDS: dict[str, Callable[[Scene], list[str]]] = dict(
    zip(PHASES, (_schedule, draft_words, _verify, accepted_words, _synchronise), strict=True)
)


def _schedule_row(scene: Scene, row: BatchRow) -> str:
    if row.finished and not row.gained:
        return f"request {row.request} has finished and gains nothing"
    verb = "entered" if row.request in scene.new else "continues"
    return f"request {row.request} {verb} with {count(row.length, 'token')}"


def _verify_row(scene: Scene, row: BatchRow) -> str:
    drafts = f" and {count(row.verified, 'draft')} after it" if row.verified else ""
    return f"the target read its pending token{drafts}"


def _synchronise_row(scene: Scene, row: BatchRow) -> str:
    if row not in scene.continuing:
        return "leaves the batch: its request has finished"
    return f"goes on with {count(row.index + 1, 'token')}"


ROW_WORDS: dict[str, Callable[[Scene, BatchRow], str]] = dict(
    zip(
        PHASES,
        (_schedule_row, draft_phrase, _verify_row, gained_phrase, _synchronise_row),
        strict=True,
    )
)
