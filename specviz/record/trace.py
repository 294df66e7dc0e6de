"""The record of a run, and its file.

Contract: a `Trace` holds everything that tables, checks and pictures need, in numpy arrays, and checks itself when it is
made. `save` and `load` keep it in one safetensors file: a tensor for each column, the meta data as JSON beside them.
Not known here: models, torch, how a record comes about and what is drawn from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from specviz.record.schema import (
    ACCEPTED,
    BONUS,
    COLUMNS,
    PROMPT,
    Array,
    Table,
    TraceError,
    named,
    validated,
)
from specviz.util.files import write

FORMAT_VERSION = 1
# What brings the meta data and columns of an older file one version further: {version of the file: function of both}.
# A release that changes the format raises FORMAT_VERSION, adds an entry, and keeps a file of the version before in tests/data.
UPGRADES: dict[int, Callable[[dict[str, Any], Table], tuple[dict[str, Any], Table]]] = {}
_HEADER = (
    "specviz"  # the one key in the file's metadata; a second would make the order of bytes random
)
_FILE_DTYPES = ("U8", "I32", "I64", "F32")


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """A recorded run. Every table is {column: array}; `COLUMNS` lists dtypes and shapes. Raises TraceError if one is off.

    meta: JSON values: strategy, strategy_options, valid, drafter, drafter_options, num_draft_tokens (K), batch_size, device, dtype,
        versions, created (ISO time), target and draft (names), vocabulary_size, eos_token_ids, seed,
        sampling (a dict of what `SamplingParams` holds, None for greedy),
        kv_bytes_per_slot {"target", "draft"}, decisions (name of each code in rounds.decision), token_texts {"id": text}.
    requests: the callers' prompts, their outputs and budgets; tokens flat, offsets (R+1,).
    rounds: one entry a round: batch (rows), slots (columns the verify forward saw), decision, five times in ms.
    rows: one entry per round and row, sorted: request, length (n before acceptance), drafted, accepted, gained (tokens kept
        after clipping; 0 for a finished row that stays in the batch), finished, start and start_after (slot of the row's
        first token before and after synchronising), pending and pending_after (slot of its last token, likewise), discarded (tokens
        that were verified and thrown away); drafts (N, K), emitted (N, K+1) with -1 behind the gained ones,
        log-probabilities, and the top candidates.
    feeds: one entry per token fed through a model: round, phase, step, model, row, request, token, its index in the row,
        the position id it was given, slot (written), and the slots [visible_start, visible_stop) that it attended to.
    holes: ranges [start, stop) of slots masked out of what entry `feed` of feeds attended to.
    moves: blocks of `length` slots copied inside a model's cache, (from_row, from_slot) to (to_row, to_slot).
    pool: for a strategy with a pool, one entry per round and row of it: request, length, waited (rounds that it has been passed over),
        chosen (whether it is in this round's batch). Empty otherwise.

    Operations of one phase happen in the order of `step`; those of one step happen at once. The arrays are read-only.
    """

    meta: dict[str, Any]
    requests: Table
    rounds: Table
    rows: Table
    feeds: Table
    holes: Table
    moves: Table
    pool: Table

    def __post_init__(self) -> None:
        meta, tables = validated(self.meta, {name: getattr(self, name) for name in COLUMNS})
        for name, value in {"meta": meta, **tables}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Trace({named(self.meta['strategy'])}, {self.num_requests} requests, {self.num_rounds} rounds)"

    @property
    def num_rounds(self) -> int:
        return int(self.rounds["batch"].size)

    @property
    def num_requests(self) -> int:
        return int(self.requests["budget"].size)

    def prompt(self, request: int) -> list[int]:
        """Token ids of a request's prompt. Raises IndexError when there is no such request."""
        return self._tokens("prompt", request)

    def output(self, request: int) -> list[int]:
        """Token ids that were generated for a request. Raises IndexError when there is no such request."""
        return self._tokens("output", request)

    def text(self, token: int) -> str:
        """The text of a token id, or the id in angle brackets where the record does not know it."""
        return str(self.meta["token_texts"].get(str(token), f"<{token}>"))

    def origins(self, request: int) -> Array:
        """Where each token of prompt + output came from: uint8 codes PROMPT, ACCEPTED (a draft) or BONUS (the target)."""
        prompt, output = len(self.prompt(request)), len(self.output(request))
        codes = np.repeat(np.array([PROMPT, BONUS]), [prompt, output])
        entries = self.rows["request"] == request
        first, accepted, gained = (
            self.rows[name][entries] for name in ("length", "accepted", "gained")
        )
        for start, stop in zip(first, first + np.minimum(accepted, gained), strict=True):
            codes[start:stop] = ACCEPTED
        return codes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record to `path`, whole or not at all. The folder has to exist; raises WriteError if it cannot be written."""
        write(path, self._to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a record. Raises TraceError that names the file, what is wrong with it and the remedy."""
        try:
            meta, tables = _read(path)
            return cls(meta, **tables)
        except TraceError as error:
            raise TraceError(f"{os.fspath(path)}: {error}") from error.__cause__

    def _tokens(self, name: str, request: int) -> list[int]:
        if not 0 <= request < self.num_requests:
            raise IndexError(
                f"there is no request {request}: the record has {self.num_requests}; count from 0"
            )
        start, stop = self.requests[f"{name}_offsets"][request : request + 2]
        return [int(token) for token in self.requests[f"{name}_tokens"][start:stop]]

    def _to_bytes(self) -> bytes:
        tensors = {
            f"{table}.{column}": values
            for table in COLUMNS
            for column, values in getattr(self, table).items()
        }
        header = json.dumps({"format_version": FORMAT_VERSION, "meta": self.meta})
        return to_safetensors(tensors, {_HEADER: header})


def flatten_requests(
    prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], budgets: Sequence[int]
) -> Table:
    """The table `requests` of a trace, from a prompt, an output (token ids) and a budget per request."""
    table = {"budget": np.array(budgets, np.int32)}
    for name, sequences in (("prompt", prompts), ("output", outputs)):
        table[f"{name}_tokens"] = np.array(
            [token for tokens in sequences for token in tokens], np.int32
        )
        table[f"{name}_offsets"] = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
    return table


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Table]]:
    _check_file(path)
    try:
        with safe_open(path, framework="numpy") as file:
            version, meta = _header(file.metadata())
            columns = {name: _column(file, name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    except OSError as error:
        raise TraceError(f"cannot be read ({error.strerror or error}); check the path") from error
    except SafetensorError as error:
        raise TraceError(
            "is no safetensors file, or a damaged one; copy it again or record the run again"
        ) from error
    for step in range(version, FORMAT_VERSION):
        meta, columns = UPGRADES[step](meta, columns)
    return meta, _tables(columns)


def _check_file(path: str | os.PathLike[str]) -> None:
    """Refuse what could keep a reader waiting or never end."""
    try:
        regular = S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError) as error:
        raise TraceError(
            f"cannot be read ({getattr(error, 'strerror', None) or error}); check the path"
        ) from error
    if not regular:
        raise TraceError("is a folder or a device and no file; check the path")


def _header(metadata: dict[str, str] | None) -> tuple[int, dict[str, Any]]:
    """A file's format version, once it is known to be one that can be read, and its meta data."""
    if not metadata or _HEADER not in metadata:
        raise TraceError("is a safetensors file but no trace; choose a file that Trace.save wrote")
    try:
        header = json.loads(metadata[_HEADER])
        version, meta = header["format_version"], header["meta"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise TraceError("has a damaged trace header; record the run again") from error
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        remedy = (
            "install a newer release of specviz"
            if type(version) is int and version > 1
            else "record the run again"
        )
        told = f"{named(repr(version))} where this release reads version {FORMAT_VERSION}"
        raise TraceError(f"has format version {told}; {remedy}")
    return version, dict(meta) if isinstance(meta, dict) else {}


def _column(file: Any, name: str) -> Array:
    dtype = file.get_slice(name).get_dtype()
    if dtype not in _FILE_DTYPES:
        raise TraceError(
            f"{named(name)} is stored as {named(dtype)}, which no column of a trace is; record the run again"
        )
    try:
        return np.asarray(file.get_tensor(name))
    except (ValueError, OverflowError) as error:  # no bytes, but sizes that no array can have
        raise TraceError(
            f"{named(name)} has a shape that no column can have; record the run again"
        ) from error


def _tables(columns: dict[str, Array]) -> dict[str, Table]:
    tables: dict[str, Table] = {name: {} for name in COLUMNS}
    for name, values in columns.items():
        table, _, column = name.partition(".")
        if table not in tables:
            raise TraceError(f"columns are unknown: {named(name)}; record the run again")
        tables[table][column] = values
    return tables
