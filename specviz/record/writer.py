"""`TraceWriter`: a log of any engine, one call a forward, a move and a round.

What a call leaves out about time follows from the order of the calls. Each is checked when it is
made, and kept as a line of the log and as entries of the record.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specviz.record import given
from specviz.record.builder import BLOCK, Builder, Round, Seen
from specviz.record.check import MAX_WIDTH
from specviz.record.given import MOST_TOKENS, RoundEnd, wrong
from specviz.record.schema import MISSING, MODELS, PHASES, Array, Table
from specviz.record.trace import Trace
from specviz.util.files import as_write_error, write
from specviz.util.text import count
from specviz.util.validate import (
    is_list,
    require_choice,
    require_int,
    require_names,
    require_path,
    short,
)

VERSION = 1
_LATE = ("verify", "accept", "synchronise")  # phases in which a round's verification has run
# The columns of `rows` whose names in a `RoundEnd` differ.
_COLUMNS = {
    "rows": "row",
    "requests": "request",
    "starts": "start",
    "starts_after": "start_after",
    "draft_logprobs": "draft_logprob",
    "target_logprobs": "target_logprob",
}

Line = dict[str, Any]  # entries as arrays, until they are written
_PADDED = ("drafts", "emitted", "choices", "path")  # lists that end before their first -1


def as_bytes(line: Line) -> bytes:
    """Return a line of the file, with its line end."""
    entries = {name: _json(name, value) for name, value in line.items()}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode() + b"\n"


def _json(name: str, value: Any) -> Any:
    """Return an entry as JSON has it: null for NaN, "-inf" for minus infinity."""
    if isinstance(value, Seen):  # for each query, the ranges of slots that it saw
        begins = value.start.tolist()
        found: list[list[list[int]]] = [[] for _ in begins]
        for query, start, stop in value.holes.tolist():
            found[query].append([begins[query], start])
            begins[query] = stop
        for query, stop in enumerate(value.stop.tolist()):
            found[query].append([begins[query], stop])
        return found
    if isinstance(value, tuple):
        return [_json("", each) for each in value]
    if name == "ms":
        return {phase: round(ms, 6) for phase, ms in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "f":
        shown = value.astype(object)
        shown[np.isnan(value)] = None
        shown[value == -np.inf] = "-inf"
        return shown.tolist()
    if name in _PADDED:
        ends = (value >= 0).sum(axis=1).tolist()
        return [row[:end] for row, end in zip(value.tolist(), ends, strict=True)]
    return value.tolist()


class TraceWriter:
    """Log what a decoder does, and make a `Trace` of it.

    ```python
    writer = sv.TraceWriter(prompts, vocabulary_size=V, num_draft_tokens=K, eos_token_ids=[0])
    writer.forward("target", rows=..., requests=..., tokens=..., indices=...)  # each forward
    writer.move("target", from_row=1, from_slot=13, to_row=1, to_slot=8, length=21)  # if any
    writer.round(sv.RoundEnd(rows=..., requests=..., drafts=..., accepted=..., emitted=...))
    print(sv.check_invariants(writer.trace()))
    ```

    What an engine does not know is left out: the record's header then lists it under "missing",
    checks skip what needs it and say so, tables have NaN and the step-through one line. Lists,
    numpy arrays and torch tensors are accepted alike. b rows of a batch, q tokens a row, K draft
    tokens, n committed tokens of a row, T slots of a cache.

    Args:
        prompts: token ids of each request; `add_request` adds more later.
        vocabulary_size: V, of both models.
        num_draft_tokens: K, the most tokens that a row drafts in a round.
        budget: how many new tokens a request may get: one int, or one for each prompt.
        eos_token_ids: the tokens that end a request.
        decoder: its name.
        drafter: what drafts: "model", "lookup", or a name of your own; None if nothing does.
        sampling: None for greedy decoding, else a dict with temperature, top_k, top_p, coupling.
        tokenizer: something with `decode([id])`, asked for the text of each token that occurs; or
            {id: text}.
        missing: names of `specviz.record.schema.MISSING` that the decoder has and does not log,
            such as "moves" for one that moves K/V without a call of `move`. What no call has given
            is found without this.
        about: what else is known, by name: target and draft (names of the models), device, dtype,
            created (the time of the run, as text; now if it is left out), batch_size (the most rows
            of a round), kv_bytes_per_slot ({"target": bytes, "draft": bytes} of one token's K/V in
            all layers), and what the decoder promises: right_aligned (that the rows of a round end
            in one column; False if it is left out), keep_draft (that the draft model keeps its K/V
            between rounds; True), valid (the target's own text; True).
        path: a file to which each event is appended as it happens, so that a crash loses nothing.

    Raises:
        ValueError: an argument cannot be used; names it, its value and the remedy. So do all
            methods.
        WriteError: `path` cannot be written.
    """

    def __init__(
        self,
        prompts: Sequence[Sequence[int]] = (),
        *,
        vocabulary_size: int,
        num_draft_tokens: int,
        budget: int | Sequence[int] | None = None,
        eos_token_ids: Sequence[int] = (),
        decoder: str = "decoder",
        drafter: str | None = "model",
        sampling: Mapping[str, Any] | None = None,
        tokenizer: Any = None,
        missing: Sequence[str] = (),
        about: Mapping[str, Any] | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self._vocabulary_size = require_int("vocabulary_size", vocabulary_size, maximum=MOST_TOKENS)
        self._k = require_int("num_draft_tokens", num_draft_tokens, 0, maximum=MAX_WIDTH - 1)
        self._header = {
            "vocabulary_size": self._vocabulary_size,
            "num_draft_tokens": self._k,
            "eos_token_ids": given.eos(eos_token_ids),
            "decoder": given.text("decoder", decoder),
            **given.about(about),
        }
        if sampling is not None:
            self._header["sampling"] = given.sampling(sampling)
        self._header["drafter"] = None if drafter is None else given.text("drafter", drafter)
        require_names("missing", missing)
        names = {require_choice("missing", name, MISSING) for name in missing}
        self._header["missing"] = sorted(names)
        self._texts: dict[str, str] = {}
        self._tokenizer = None
        if isinstance(tokenizer, Mapping):
            self._texts |= given.texts("tokenizer", tokenizer)
        elif tokenizer is not None and not callable(getattr(tokenizer, "decode", None)):
            remedy = "pass a tokenizer of transformers, or {id: text}"
            raise wrong("tokenizer", "have a method decode", tokenizer, remedy)
        else:
            self._tokenizer = tokenizer
        if not is_list(prompts) and getattr(prompts, "ndim", 0) < 2:
            raise wrong("prompts", "be a list of lists of token ids", prompts, "pass ids")
        checked = [
            given.prompt(f"prompts[{i}]", prompt, self._vocabulary_size)
            for i, prompt in enumerate(prompts)
        ]
        budgets: Any = (
            given.plain(budget) if hasattr(budget, "__len__") else [budget] * len(checked)
        )
        if len(budgets) != len(checked):
            raise ValueError(
                f"budget must have {len(checked)} entries, got {short(budget)}; pass one int for "
                "each prompt, or one for all"
            )
        budgets = [given.budget(each) for each in budgets]  # before the file is opened
        self._builder = Builder(self._k)
        self._lengths: list[int] = []  # n of each request after the last round that has ended
        self._ends: dict[int, int] = {}  # the last token of each request that has gained any
        self._lines: list[Line] = []  # as they came
        self._latest = ""  # the latest phase of the round that is going on, "" for none
        self._file = None if path is None else write(require_path("path", path), b"")
        self._put({"kind": "header", "version": VERSION, **self._header})
        if self._texts:
            self._put({"kind": "texts", "texts": dict(self._texts)})
        for prompt, most in zip(checked, budgets, strict=True):
            self._request(prompt, most)

    def __repr__(self) -> str:
        requests = count(len(self._lengths), "request")
        rounds = count(len(self._builder.rounds), "round")
        return f"TraceWriter({self._header['decoder']}, {requests}, {rounds})"

    def add_request(self, prompt: Sequence[int], budget: int | None = None) -> int:
        """Add a request that was not among the prompts. Return its number.

        Args:
            prompt: its token ids, one or more.
            budget: how many new tokens it may get.
        """
        tokens = given.prompt("prompt", prompt, self._vocabulary_size)
        return self._request(tokens, given.budget(budget))

    def add_texts(self, texts: Mapping[Any, str]) -> None:
        """Add the texts of tokens, {id: text}."""
        found = given.texts("texts", texts)
        self._texts |= found
        self._put({"kind": "texts", "texts": found})

    def forward(
        self,
        model: str,
        *,
        rows: Any,
        requests: Any,
        tokens: Any,
        indices: Any,
        positions: Any = None,
        slots: Any = None,
        visible: Any = None,
        nodes: Any = None,
        states: Any = None,
        phase: str | None = None,
    ) -> None:
        """Log one forward of a model, as it was called.

        Log what the model gets, and not what you think it should get. Only `indices` come from
        your own count.

        Args:
            model: "target" or "draft".
            rows: (b,), the row of the cache that each row of the forward uses.
            requests: (b,), the number of the request in each of them.
            tokens: (b, q), what is fed; or (n,), packed, with one entry a token in all arguments.
                Lists of rows may have different lengths.
            indices: (b, q), the index of each token in its own row, prompt included, from 0. A
                negative one marks padding.
            positions: (b, q) or (1, q), the position ids that the model gets.
            slots: (b, q) or (1, q), where the K/V of each token is written.
            visible: what each query sees: a bool mask (b, q, T) or (b, 1, q, T), an additive mask
                of that shape, or for each query its (start, stop) range of slots, or a list of
                such ranges. A mask (b, T) names the slots that a row may see, which the model makes
                causal itself.
            nodes: (b, q), for trees: 1 + the number of the draft that a token is, else 0.
            states: (b, 2), where layers keep states: request and index of the token whose states
                each row goes on from; index -1 for none.
            phase: "schedule" for a prefill, "draft" or "verify". None: a forward that stops before
                every row's pending token, the last one of n, is a prefill.
        """
        require_choice("model", model, MODELS)
        fed = given.rectangle("tokens", tokens)
        packed = fed.ndim == 1
        fed = _two_dimensional(fed)
        shape = fed.shape
        index = _two_dimensional(given.rectangle("indices", indices))
        if index.shape != shape:
            raise ValueError(
                f"tokens and indices must have one shape, got {short(tokens)} and "
                f"{short(indices)}; pass one index for each token"
            )
        last = len(self._lengths) - 1
        of_rows = {
            "row": given.ints("rows", rows, shape[:1]),
            "request": given.ints("requests", requests, shape[:1], 0, last),
        }
        picked = index >= 0
        picked_of_row = picked.sum(axis=1)
        columns = {name: np.repeat(of, picked_of_row) for name, of in of_rows.items()}
        columns["token"] = given.limited("tokens", fed[picked], 0, self._vocabulary_size - 1)
        columns["index"] = given.limited("indices", index[picked], 0)
        lengths = np.array(self._lengths, np.int64)[columns["request"]]
        self._check_reach(columns, lengths)
        line: Line = {"rows": columns["row"], "requests": columns["request"]}
        line |= {"tokens": columns["token"], "indices": columns["index"]}
        for name, value in {"positions": positions, "slots": slots, "nodes": nodes}.items():
            if value is not None:
                array = given.rectangle(name, value)
                array = _two_dimensional(array) if packed else array
                array = given.shaped(name, array, shape)[picked]
                line[name] = columns[name.removesuffix("s")] = given.limited(name, array, 0)
        if states is not None:
            pairs = given.ints("states", states, (shape[0], 2), -1)
            given.limited("states", pairs[:, 0], 0, last)
            line["states"] = np.repeat(pairs, picked_of_row, axis=0)
            columns["after_request"], columns["after"] = line["states"].T
        holes = {}
        if visible is not None:
            if slots is None:
                raise ValueError(
                    f"visible needs slots, got visible={short(visible)} alone; pass both, or leave "
                    "both out"
                )
            seen = given.seen(visible, picked, columns["slot"], packed=packed)
            columns |= {"visible_start": seen.start, "visible_stop": seen.stop}
            holes["holes"] = seen.holes
            line["visible"] = seen
        if phase is None:
            # A prefill stops before each row's pending token.
            phase = "draft" if model == "draft" else "verify"
            if not (columns["index"] >= lengths - 1).any():
                phase = "schedule"
            elif phase == "draft" and self._latest in _LATE:
                # The draft reads what was accepted, once the target has judged it.
                phase = "synchronise"
        self._reach(phase)
        self._builder.forward(MODELS.index(model), PHASES.index(phase), columns, **holes)
        self._tell_texts(columns["token"])
        self._put({"kind": "forward", "model": model, "phase": phase, **line})

    def move(
        self,
        model: str,
        *,
        from_row: Any,
        from_slot: Any,
        to_row: Any,
        to_slot: Any,
        length: Any,
        phase: str | None = None,
    ) -> None:
        """Log K/V that was copied inside a model's cache.

        All arguments are ints, or lists with one entry for each block. The copies of one call read
        before any of them writes; calls follow one another.

        Args:
            model: "target" or "draft".
            from_row, from_slot, to_row, to_slot: where the block began and begins.
            length: its slots.
            phase: when. None: "synchronise" after the round's verification, also right after the
                call of `round`, if the row stays the same; "schedule" otherwise.
        """
        require_choice("model", model, MODELS)
        columns = {}
        values = (from_row, from_slot, to_row, to_slot, length)
        for name, value in zip(BLOCK, values, strict=True):
            column = given.array(name, value, "an int or a list of ints")
            if column.ndim > 1 or column.size == 0:
                raise wrong(name, "be an int or a list of ints", value, "pass one for each block")
            columns[name] = given.limited(name, column.reshape(-1), name == "length")
        size = max(column.size for column in columns.values())
        columns = {name: given.shaped(name, each, (size,)) for name, each in columns.items()}
        may_follow = bool(self._builder.rounds) and not self._latest  # right behind a round's end
        if phase is None:
            within = np.array_equal(columns["from_row"], columns["to_row"])
            is_late = self._latest in _LATE or (may_follow and within)
            phase = "synchronise" if is_late else "schedule"
        require_choice("phase", phase, PHASES)
        late = may_follow and phase == "synchronise"
        if not late:
            self._reach(phase)
        blocks = np.stack(list(columns.values()), axis=1)
        self._builder.move(MODELS.index(model), PHASES.index(phase), blocks, late=late)
        self._put({"kind": "move", "model": model, "phase": phase, **columns})

    def round(self, end: RoundEnd) -> None:
        """Log what a round did to the rows of its batch, and end the round."""
        if not isinstance(end, RoundEnd):
            raise wrong("end", "be a RoundEnd", end, "pass sv.RoundEnd(rows=...)")
        line = given.read_round(end, self._k, self._vocabulary_size, len(self._lengths))
        order = np.argsort(line["rows"])
        rows: Table = {}
        for name, values in line.items():
            if name == "choices":
                rows["target_top_ids"] = values[order][:, :, None]
            elif name.endswith("_top"):
                for part, each in zip(("ids", "logprobs"), values, strict=True):
                    rows[f"{name}_{part}"] = each[order]
            elif name not in ("slots", "ms"):
                rows[_COLUMNS.get(name, name)] = values[order]
        facts: dict[str, Any] = {}
        if end.slots is not None:
            facts["slots"] = int(line["slots"])
        if end.ms is not None:
            facts["ms"] = [line["ms"].get(phase, np.nan) for phase in PHASES]
        told = [line[name] for name in ("drafts", "emitted", "choices") if name in line]
        told += [line[name][0] for name in ("target_top", "draft_top") if name in line]
        self._tell_texts(*told)
        self._put({"kind": "round", **line})
        self._builder.round(Round(rows, facts))
        for request, tokens in zip(line["requests"].tolist(), line["emitted"], strict=True):
            gained = tokens[tokens >= 0].tolist()
            self._lengths[request] += len(gained)
            self._ends[request] = gained[-1] if gained else self._ends.get(request, -1)
        self._latest = ""

    def trace(self) -> Trace:
        """Return the record of all rounds that have ended.

        Raises ValueError if none has.
        """
        builder, header = self._builder, self._header
        if not builder.rounds:
            raise ValueError("rounds must have ended, got none; call round(...) after each round")
        missing = builder.missing(header["drafter"]) | set(header["missing"])
        if "kv_bytes_per_slot" not in header:
            missing.add("kv_bytes")
        about: dict[str, Any] = {
            "draft": None,
            "sampling": None,
            "kv_bytes_per_slot": dict.fromkeys(MODELS, 0),
        }
        about["batch_size"] = max(ended.rows["row"].size for ended in builder.rounds)
        about |= {name: value for name, value in header.items() if name != "decoder"}
        meta = {
            **about,
            "strategy": header["decoder"],
            "strategy_options": {},
            "drafter_options": {},
            "versions": {},
            "seed": None,
            "decisions": ["as logged"],
            "token_texts": dict(self._texts),
            "missing": [name for name in MISSING if name in missing],
        }
        if "budget" not in missing:
            meta["status"] = [self._status(request) for request in range(len(self._lengths))]
        return Trace(meta, **builder.tables(header["eos_token_ids"]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the log to `path`, whole or not at all: a line of JSON for each event.

        `trace().save(path)` writes the record itself, which is smaller.

        Raises:
            WriteError: the file cannot be written.
        """
        write(path, b"".join(map(as_bytes, self._lines)))

    def _request(self, tokens: Array, budget: int | None) -> int:
        line: Line = {"kind": "request", "prompt": tokens}
        if budget is not None:
            line["budget"] = budget
        self._tell_texts(tokens)
        self._put(line)
        self._builder.prompts.append(tokens.tolist())
        self._builder.budgets.append(budget)
        self._lengths.append(tokens.size)
        return len(self._lengths) - 1

    def _status(self, request: int) -> str:
        """Return how a request ended."""
        if self._ends.get(request, -1) in self._header["eos_token_ids"]:
            return "eos"
        gained = self._lengths[request] - len(self._builder.prompts[request])
        return "budget" if gained == self._builder.budgets[request] else "interrupted"

    def _check_reach(self, columns: Table, lengths: Array) -> None:
        last = lengths + self._k - 1
        beyond = np.flatnonzero(columns["index"] > last)
        if beyond.size:
            at = int(beyond[0])
            raise ValueError(
                f"indices must be at most n + K - 1 = {last[at]} for request "
                f"{columns['request'][at]}, got {columns['index'][at]}; "
                "call round(...) after each round, so that n grows"
            )

    def _reach(self, phase: str) -> None:
        """Check that the phases of a round follow one another, as the record replays them."""
        require_choice("phase", phase, PHASES)
        if self._latest and PHASES.index(phase) < PHASES.index(self._latest):
            raise ValueError(
                f"phase must not be before {self._latest}, which this round has reached, "
                f"got {phase!r}; call round(...) at the end of each round"
            )
        self._latest = phase

    def _tell_texts(self, *tokens: Array) -> None:
        """Ask the tokenizer for the texts of those tokens that have none yet."""
        if self._tokenizer is None:
            return
        found: dict[str, str] = {}
        for token in np.unique(np.concatenate([array.ravel() for array in tokens])).tolist():
            if token < 0 or str(token) in self._texts:
                continue
            try:
                found[str(token)] = str(self._tokenizer.decode([token]))
            except Exception as error:  # of a foreign object
                raise ValueError(
                    f"tokenizer must decode([{token}]), got {short(self._tokenizer)}, which raises "
                    f"{type(error).__name__}; pass a tokenizer of transformers, or {{id: text}}"
                ) from error
        if found:
            self._texts |= found
            self._put({"kind": "texts", "texts": found})

    def _put(self, line: Line) -> None:
        self._lines.append(line)
        if self._file is not None:
            # Opened for each line: so nothing has to be closed, and a crash loses no line.
            with as_write_error(self._file), self._file.open("ab") as file:
                file.write(as_bytes(line))


def _two_dimensional(array: Array) -> Array:
    return array[:, None] if array.ndim == 1 else array
