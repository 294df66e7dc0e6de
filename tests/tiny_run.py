"""A small run written by hand: two rows, K = 2, three rounds of realigned decoding.

EOS frees a row for a third request. Target and draft prefill all but a prompt's last token. The
draft feeds its last two committed tokens again in each round.
"""

from dataclasses import replace

import numpy as np

from specviz.record.schema import COLUMNS, MODELS, PHASES
from specviz.record.trace import Trace, flatten_requests
from specviz.record.trees import DERIVED

K = 2
PROMPTS = [[10, 11, 12, 13], [20, 21], [30, 31, 32]]
OUTPUTS = [[19, 15, 16, 17, 18, 40], [22, 23, 24, 2], [39]]
# round, row, request, length, drafted, accepted, gained, finished, start, start_after, drafts,
# emitted
ROWS = [
    (0, 0, 0, 4, 2, 0, 1, 0, 0, 0, [14, 15], [19, -1, -1]),
    (
        0,
        1,
        1,
        2,
        2,
        2,
        3,
        0,
        2,
        0,
        [22, 23],
        [22, 23, 24],
    ),  # gains more than its neighbour: moves left
    (1, 0, 0, 5, 2, 1, 2, 0, 0, 0, [15, 99], [15, 16, -1]),
    (1, 1, 1, 5, 2, 0, 1, 1, 0, 0, [25, 26], [2, -1, -1]),  # ends with EOS, request 2 takes the row
    (2, 0, 0, 7, 2, 2, 3, 1, 0, 0, [17, 18], [17, 18, 40]),
    (2, 1, 2, 3, 2, 0, 1, 0, 4, 6, [33, 34], [39, -1, -1]),  # gains less: moves right
]
MOVES = [  # round, model, row, from_slot, to_slot, length
    (0, 0, 1, 2, 0, 4),
    (0, 1, 1, 2, 0, 3),
    (2, 0, 1, 4, 6, 3),
    (2, 1, 1, 4, 6, 3),
]
META = {
    "strategy": "eqspec",
    "strategy_options": {},
    "valid": True,
    "drafter": "model",
    "num_draft_tokens": K,
    "batch_size": 2,
    "device": "cpu",
    "dtype": "float32",
    "versions": {"numpy": np.__version__},
    "created": "2025-01-02T03:04:05+00:00",
    "target": "large",
    "draft": "small",
    "vocabulary_size": 100,
    "eos_token_ids": [2],
    "seed": None,
    "sampling": None,
    "kv_bytes_per_slot": {"target": 64, "draft": 16},
    "decisions": ["grouped"],
    "token_texts": {"10": "ä\ud800", "2": "<eos>"},  # a lone surrogate, too, survives the file
}


def blank(table: str, size: int, num_drafts: int = K) -> dict[str, np.ndarray]:
    """Columns of zeros with the right dtypes, one top candidate each.

    Those that follow from others are left out.
    """
    sizes = {"N": size, "K": num_drafts, "K+1": num_drafts + 1, "k": 1, "j": 1}
    return {
        name: np.zeros([sizes[letter] for letter in column.shape], column.dtype)
        for name, column in COLUMNS[table].items()
        if name not in DERIVED.get(table, ())
    }


def fill(table: str, names: str, entries: list[tuple]) -> dict[str, np.ndarray]:
    columns = blank(table, len(entries))
    for name, values in zip(names.split(), zip(*entries, strict=True), strict=True):
        columns[name] = np.array(values, columns[name].dtype)
    return columns


def feed_entries() -> list[tuple]:
    """Return what each model reads in each round.

    A new row is prefilled. The draft reads its last committed tokens and its drafts; the target
    reads its pending token and the drafts.
    """
    entries = []
    for number, row, request, length, *_, start, _, drafts, _ in ROWS:
        tokens = (PROMPTS[request] + OUTPUTS[request])[:length] + drafts
        first = length - 1 if number == 0 else length - 2
        passes = [
            ("draft", 0, "draft", range(first, length)),
            ("draft", 1, "draft", [length]),
            ("verify", 0, "target", range(length - 1, length + K)),
        ]
        if length == len(PROMPTS[request]):
            passes += [("schedule", 0, model, range(length - 1)) for model in MODELS]
        for phase, step, model, indices in passes:
            codes = (number, PHASES.index(phase), step, MODELS.index(model))
            entries += [
                (*codes, row, request, tokens[i], i, i, start + i, start, start + i + 1)
                for i in indices
            ]
    return entries


def make_trace() -> Trace:
    moves = [
        (number, PHASES.index("synchronise"), 0, model, row, a, row, b, length)
        for number, model, row, a, b, length in MOVES
    ]
    rows = fill(
        "rows",
        "round row request length drafted accepted gained finished "
        "start start_after drafts emitted",
        ROWS,
    )
    rows["pending"] = rows["start"] + rows["length"] - 1
    rows["pending_after"] = rows["start_after"] + rows["length"] + rows["gained"] - 1
    rounds = blank("rounds", 3) | {
        "batch": np.array([2, 2, 2], np.int32),
        "slots": np.array([6, 7, 9], np.int32),
    }
    return Trace(
        meta=META,
        requests=flatten_requests(PROMPTS, OUTPUTS, [6, 9, 9]),
        rounds=rounds,
        rows=rows,
        feeds=fill(
            "feeds",
            "round phase step model row request token index position slot "
            "visible_start visible_stop",
            feed_entries(),
        ),
        holes=fill("holes", "feed start stop", [(0, 0, 1)]),
        moves=fill(
            "moves", "round phase step model from_row from_slot to_row to_slot length", moves
        ),
        pool=blank("pool", 0),
    )


TRACE = make_trace()


def changed(table: str, **columns: object) -> Trace:
    """TRACE with other columns; a column of None is left out."""
    merged = getattr(TRACE, table) | columns
    return replace(
        TRACE, **{table: {name: values for name, values in merged.items() if values is not None}}
    )
