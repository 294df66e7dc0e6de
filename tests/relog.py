"""A record of specviz, written to a `TraceWriter` call by call, as another engine would log it."""

from typing import Any

import numpy as np

import specviz as sv
from specviz.record.index import by_step
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

ABOUT = ("batch_size", "right_aligned", "keep_draft", "valid", "kv_bytes_per_slot")


def relog(trace: Trace, *, layout: bool = False, **settings: Any) -> sv.TraceWriter:
    """Return a writer that was given all that `trace` holds.

    layout: whether to say where rows begin and end. Otherwise the writer finds it out.
    """
    meta = trace.meta
    names = ("vocabulary_size", "num_draft_tokens", "eos_token_ids", "drafter", "sampling")
    given = {name: meta[name] for name in names}
    about = {name: meta[name] for name in ABOUT}
    writer = sv.TraceWriter(
        [trace.prompt(request) for request in range(trace.num_requests)],
        budget=trace.requests["budget"],
        decoder=meta["strategy"],
        about=about | settings,
        **given,
    )
    for number in range(trace.num_rounds):
        for phase in range(len(PHASES)):
            for step in trace.index.steps_of(number * len(PHASES) + phase):
                model = MODELS[step.model]
                if step.moves.size:
                    _move(writer, trace, model, PHASES[phase], step.moves)
                if step.feeds.size:
                    at = int(trace.feeds["step"][step.feeds[0]])
                    _forward(writer, trace, (step.stage, step.model, at), step.feeds)
        _round(writer, trace, number, layout)
    return writer


def _move(writer: sv.TraceWriter, trace: Trace, model: str, phase: str, moves: Any) -> None:
    names = ("from_row", "from_slot", "to_row", "to_slot", "length")
    writer.move(model, **{name: trace.moves[name][moves] for name in names}, phase=phase)


def _forward(writer: sv.TraceWriter, trace: Trace, key: tuple[int, int, int], feeds: Any) -> None:
    """Log one forward. key: its stage, model and step."""
    model, phase = MODELS[key[1]], PHASES[key[0] % len(PHASES)]
    table = {name: values[feeds] for name, values in trace.feeds.items()}
    states = None
    at = by_step(trace.states).get(key)
    if at is not None:
        rows = dict(zip(trace.states["row"][at], trace.states["feed"][at], strict=True))
        left = np.array([rows[row] for row in table["row"]])
        owner = np.where(left >= 0, trace.feeds["request"][left], table["request"])
        states = np.stack([owner, np.where(left >= 0, trace.feeds["index"][left], -1)], axis=1)
    writer.forward(
        model,
        rows=table["row"],
        requests=table["request"],
        tokens=table["token"],
        indices=table["index"],
        positions=table["position"],
        slots=table["slot"],
        visible=trace.index.visible(feeds),
        nodes=table["node"],
        states=states,
        phase=phase,
    )


def _round(writer: sv.TraceWriter, trace: Trace, number: int, layout: bool) -> None:
    at = trace.index.rows_of(number)
    rows = {name: values[at] for name, values in trace.rows.items()}
    places: dict[str, Any] = {}
    if layout:
        names = {"starts": "start", "pending": "pending"}
        places = {name: rows[column] for name, column in names.items()}
        places |= {f"{name}_after": rows[f"{column}_after"] for name, column in names.items()}
    is_draft = np.arange(rows["drafts"].shape[1]) < rows["drafted"][:, None]
    # A shuffled batch: the order of rows in a call says nothing.
    order = np.argsort(-rows["row"])
    values = {
        "rows": rows["row"],
        "requests": rows["request"],
        "drafts": np.where(is_draft, rows["drafts"], -1),
        "accepted": rows["accepted"],
        "emitted": rows["emitted"],
        "finished": rows["finished"],
        "discarded": rows["discarded"],
        "verified": rows["verified"],
        "parents": rows["parents"],
        "path": rows["path"],
        "draft_logprobs": rows["draft_logprob"],
        "target_logprobs": rows["target_logprob"],
        **places,
    }
    end = sv.RoundEnd(
        **{name: value[order] for name, value in values.items()},
        target_top=(rows["target_top_ids"][order], rows["target_top_logprobs"][order]),
        draft_top=(rows["draft_top_ids"][order], rows["draft_top_logprobs"][order]),
        slots=int(trace.rounds["slots"][number]),
        ms={phase: float(trace.rounds[f"{phase}_ms"][number]) for phase in PHASES},
    )
    writer.round(end)
