"""The record of a run, and its file.

A `Trace` holds everything that tables, checks and pictures need, in numpy arrays, and checks itself
when it is made. `save` and `load` keep it in one safetensors file: a tensor for each column, and
the meta data as JSON.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from stat import S_ISREG
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from specviz.record.check import validated
from specviz.record.chrome import to_events
from specviz.record.index import RecordIndex
from specviz.record.schema import COLUMNS, Array, Table, TraceError, named
from specviz.record.trees import chain_columns, same_values
from specviz.util.files import write
from specviz.util.text import count
from specviz.util.validate import is_int, is_list, require_int, require_path, short, shown_path

# Files of version 1 lack the columns that `chain_columns` computes, those of version 2 `states`.
FORMAT_VERSION = 3
# The only key in the file's metadata. A second one would make the order of its bytes random.
_HEADER = "specviz"
_FILE_DTYPES = ("U8", "I32", "I64", "F32")


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """A recorded run. Every table is {column: array}; `COLUMNS` lists dtypes and shapes.

    Operations of one phase happen in the order of `step`; those of one step happen at once. The
    arrays are read-only.

    Args:
        meta: JSON values: strategy, strategy_options, valid, drafter, drafter_options,
            num_draft_tokens (K), batch_size, device, dtype, versions, created (ISO time), target
            and draft (names), vocabulary_size, eos_token_ids, seed, sampling (a dict of what
            `SamplingParams` holds, None for greedy), kv_bytes_per_slot {"target", "draft"},
            decisions (name of each code in rounds.decision), token_texts {"id": text}. Where it is
            known also right_aligned: whether all rows of a round promise to end in one column,
            branches: whether the drafter may make trees, num_threads: the CPU threads that torch
            computed with, and by model layers {type: how many}, windows {type: to how many tokens
            layers attend} and bytes_per_state.
        requests: the callers' prompts, their outputs and budgets; tokens flat, offsets (R+1,).
        rounds: one entry a round: batch (rows), slots (columns that the verify forward saw),
            capacity (drafts that it might verify), decision, and the time of each of the five
            phases in ms.
        rows: one entry per round and row, sorted: request, length (n before acceptance), drafted,
            verified (how many of the drafts the target read: the first ones), accepted, gained
            (tokens kept after clipping; 0 for a finished row that stays in the batch), finished,
            start and start_after (slot of the row's first token before and after synchronising),
            pending and pending_after (slot of its last token, likewise), discarded (tokens that
            were verified and thrown away); drafts (N, K), emitted (N, K+1) with -1 behind the
            gained ones, log-probabilities, and the top candidates; scores (N, K), by which drafts
            were selected, NaN where nothing was; parents (N, K), the draft that each one follows,
            -1 for the pending token; path (N, K), the accepted drafts in order, then -1.
        feeds: one entry per token fed through a model: round, phase, step, model, row, request,
            token, its index in the row, node (1 + the number of a draft, 0 for other tokens), the
            position id it was given, slot (written), and the slots [visible_start, visible_stop)
            that it attended to; window_offset, how many slots behind visible_start the window of
            layers that have one begins.
        holes: ranges [start, stop) of slots masked out of what entry `feed` of feeds attended to.
        moves: blocks of `length` slots copied inside a model's cache, (from_row, from_slot) to
            (to_row, to_slot).
        pool: for a strategy with a pool, one entry per round and row of it: request, length, waited
            (rounds that it has been passed over), chosen (whether it is in this round's batch).
            Empty otherwise.
        states: of a model whose layers keep states, one entry for each row of a forward: feed, the
            entry of feeds whose token left the states that the row went on from, -1 for none.

    Raises:
        TraceError: a table is malformed, or two contradict each other.
    """

    meta: dict[str, Any]
    requests: Table
    rounds: Table
    rows: Table
    feeds: Table
    holes: Table
    moves: Table
    pool: Table
    states: Table = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Here, not in `load`: so no record exists that has not been checked, recorded or read.
        meta, tables = validated(self.meta, self.tables)
        for name, value in {"meta": meta, **tables}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        strategy = named(self.meta["strategy"])
        counts = f"{count(self.num_requests, 'request')}, {count(self.num_rounds, 'round')}"
        return f"Trace({strategy}, {counts})"

    @property
    def tables(self) -> dict[str, Table]:
        """All tables by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    @cached_property
    def index(self) -> RecordIndex:
        """Where the entries of each round, phase, forward, row and request are."""
        return RecordIndex(self.tables)

    @property
    def num_rounds(self) -> int:
        return int(self.rounds["batch"].size)

    @property
    def num_requests(self) -> int:
        return int(self.requests["budget"].size)

    def prompt(self, request: int) -> list[int]:
        """Return the token ids of a request's prompt. Raises IndexError for an unknown request."""
        return self._tokens("prompt", request)

    def output(self, request: int) -> list[int]:
        """Return the token ids generated for a request.

        Raises IndexError for an unknown request.
        """
        return self._tokens("output", request)

    def text(self, token: int) -> str:
        """Return the text of a token id, or the id in angle brackets if the record lacks it.

        Raises ValueError if `token` is not an int >= 0.
        """
        require_int("token", token, minimum=0)
        return str(self.meta["token_texts"].get(str(token), f"<{token}>"))

    def origins(self, request: int) -> Array:
        """Return where each token of prompt + output came from.

        uint8 codes: PROMPT, ACCEPTED (a draft) or BONUS (the target). Raises IndexError for an
        unknown request.
        """
        self._check_request(request)
        committed = self.index.committed
        first = committed.first[request]
        codes: Array = committed.origins[first : first + committed.size[request]].copy()
        return codes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record to `path`, whole or not at all. The folder has to exist.

        Raises:
            ValueError: `path` cannot be a path.
            WriteError: the file cannot be written.
        """
        derived = chain_columns(self.tables, self.meta["num_draft_tokens"])
        tensors: dict[str, Array] = {}
        for table, columns in self.tables.items():
            for column, values in columns.items():
                computed = derived.get(table, {}).get(column)
                # A reader computes it again.
                if computed is None or not same_values(values, computed):
                    tensors[f"{table}.{column}"] = values
        header = json.dumps({"format_version": FORMAT_VERSION, "meta": self.meta})
        write(path, to_safetensors(tensors, {_HEADER: header}))

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write phases, rows and copies of K/V as events, which Perfetto and chrome://tracing draw.

        Raises:
            ValueError: the record has no times, or `path` cannot be a path.
            WriteError: the file cannot be written.
        """
        events = to_events(self.meta, self.tables)
        write(path, json.dumps(events, indent=1).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Trace":
        """Read a record.

        Raises:
            TraceError: the file cannot be read or holds no valid record; names file and remedy.
            ValueError: `path` cannot be a path.
        """
        path = require_path("path", path)
        try:
            meta, tables = _read(path)
            return cls(meta, **tables)
        except TraceError as error:
            raise TraceError(f"{shown_path(path)}: {error}") from error.__cause__

    def _check_request(self, request: int) -> None:
        if not is_int(request) or not 0 <= request < self.num_requests:
            raise IndexError(
                f"there is no request {short(request)}: the record has {self.num_requests}; "
                "count from 0"
            )

    def _tokens(self, name: str, request: int) -> list[int]:
        self._check_request(request)
        start, stop = self.requests[f"{name}_offsets"][request : request + 2]
        tokens: list[int] = self.requests[f"{name}_tokens"][start:stop].tolist()
        return tokens


def flatten_requests(
    prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], budgets: Sequence[int]
) -> Table:
    """Return the table `requests` from a prompt, an output (token ids) and a budget each."""
    table = {"budget": np.array(budgets, np.int32)}
    for name, sequences in (("prompt", prompts), ("output", outputs)):
        table[f"{name}_tokens"] = np.array(list(chain.from_iterable(sequences)), np.int32)
        table[f"{name}_offsets"] = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
    return table


class RecordedRun(Protocol):
    """What the tables read: a Trace, or a result with the same columns but no caches."""

    @property
    def meta(self) -> Mapping[str, Any]: ...
    @property
    def rounds(self) -> Mapping[str, Array]: ...
    @property
    def rows(self) -> Mapping[str, Array]: ...


def check_recorded(run: object, name: str = "run") -> None:
    """Raise ValueError unless `run` is a Result, a Trace or the like.

    It is None where a run was not recorded, as `result.trace` is without record=True. name: what
    the message calls the argument.
    """
    if run is None:
        raise ValueError(f"{name}=None: this run was not recorded; call generate(..., record=True)")
    parts = ("meta", "rounds", "rows")
    if not all(isinstance(getattr(run, part, None), Mapping) for part in parts):
        raise ValueError(
            f"{name} must be a Result or a Trace, got {short(run)}; "
            "pass what specviz.generate returned"
        )


def check_runs(runs: object, name: str = "runs") -> None:
    """Raise ValueError unless `runs` is a list of one run or more, all recorded."""
    if not is_list(runs):
        raise ValueError(f"{name} must be a list, got {short(runs)}; pass a list, even of one run")
    for i, run in enumerate(runs):
        check_recorded(run, f"{name}[{i}]")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Table]]:
    tables: dict[str, Table] = {name: {} for name in COLUMNS}
    try:
        # Reading a pipe or a device may block, or never end.
        if not S_ISREG(path.stat().st_mode):
            raise TraceError("is a folder or a device, not a file; check the path")
        with safe_open(path, framework="numpy") as file:
            meta = _meta(file.metadata())
            for name in file.keys():  # noqa: SIM118 - file is not a dict
                table, _, column = name.partition(".")
                if table not in tables:
                    raise TraceError(f"columns are unknown: {named(name)}; record the run again")
                tables[table][column] = _column(file, name)
    except TraceError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"cannot be read ({reason}); check the path") from error
    except SafetensorError as error:
        raise TraceError(
            "is not a safetensors file, or a damaged one; copy it again or record the run again"
        ) from error
    return meta, tables


def _column(file: Any, name: str) -> Array:
    dtype = file.get_slice(name).get_dtype()
    if dtype not in _FILE_DTYPES:  # some of them numpy does not have
        raise TraceError(
            f"{named(name)} is stored as {named(dtype)}, which no column of a trace may be; "
            "record the run again"
        )
    try:
        return np.asarray(file.get_tensor(name))
    except (ValueError, OverflowError) as error:  # sizes that no array can have
        raise TraceError(
            f"{named(name)} has a shape that no column can have; record the run again"
        ) from error


def _meta(metadata: dict[str, str] | None) -> dict[str, Any]:
    """Return the meta data of a file. Raise TraceError for a format that is not known."""
    if not metadata or _HEADER not in metadata:
        raise TraceError(
            "is a safetensors file but not a trace; choose a file that Trace.save wrote"
        )
    try:
        header = json.loads(metadata[_HEADER])
        version, meta = header["format_version"], header["meta"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise TraceError("has a damaged trace header; record the run again") from error
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise TraceError(
            f"has format version {named(repr(version))}, but this release reads version "
            f"{FORMAT_VERSION}; install a newer release of specviz, or record the run again"
        )
    return meta if isinstance(meta, dict) else {}
