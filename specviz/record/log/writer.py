"""`TraceWriter`: a log of any engine, one call a forward, a move and a round.

Contract: each call is checked where it is made, and becomes one event. `trace` makes a record of
the events. Not known here: how lines are spelled, and how events become tables.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specviz.record.log.arrays import as_array, check_limits, integers
from specviz.record.log.events import Forward, Limits, Moves, Placed, RoundEnd
from specviz.record.log.forward import read_forward, read_moves
from specviz.record.log.header import checked_header, now
from specviz.record.log.lines import (
    LogFile,
    as_bytes,
    event_line,
    header_line,
    request_line,
    texts_line,
)
from specviz.record.log.roundend import read_round
from specviz.record.log.tables import Requests, to_trace
from specviz.record.log.texts import Texts
from specviz.record.schema import PHASES, Array
from specviz.record.trace import Trace
from specviz.util.files import write
from specviz.util.validate import is_list, require_int, short

_LATE = ("verify", "accept", "synchronise")  # phases in which a round has been judged
_CANDIDATES = ("choices", "target_top_ids", "draft_top_ids")


class TraceWriter:
    """Log what a decoder does, and make a `Trace` of it.

    ```python
    writer = sv.TraceWriter(prompts, vocabulary_size=V, num_draft_tokens=K, eos_token_ids=[0])
    writer.forward("target", rows=..., requests=..., tokens=..., indices=...)  # each forward
    writer.move("target", from_row=1, from_slot=13, to_row=1, to_slot=8, length=21)  # if any
    writer.round(rows=..., requests=..., drafts=..., accepted=..., emitted=...)  # ends a round
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
        decoder, target, draft: names of the decoder and of the models.
        drafter: what drafts: "model", "lookup", or a name of your own; None if nothing does.
        sampling: None for greedy decoding, else a dict with temperature, top_k, top_p, coupling.
        kv_bytes_per_slot: {"target": bytes, "draft": bytes} of one token's K/V in all layers.
        right_aligned: whether the rows of a round promise to end in one column.
        keep_draft: whether the draft model keeps its K/V between rounds.
        valid: whether the decoder promises the target's own text.
        batch_size: the most rows of a round; None for the most that there were.
        device, dtype: where and in what the models ran.
        token_texts: {id: text}, for tables and pictures.
        tokenizer: something with `decode([id])`, asked for the text of each token that occurs.
        missing: names of `specviz.record.missing.MISSING` that the decoder has and does not log,
            such as "moves" for one that moves K/V without a call of `move`. What no call has given
            is found without this.
        created: the time of the run, as text; None for now.
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
        target: str = "target",
        draft: str | None = None,
        drafter: str | None = "model",
        sampling: Mapping[str, Any] | None = None,
        kv_bytes_per_slot: Mapping[str, int] | None = None,
        right_aligned: bool = False,
        keep_draft: bool = True,
        valid: bool = True,
        batch_size: int | None = None,
        device: str = "unknown",
        dtype: str = "unknown",
        token_texts: Mapping[Any, str] | None = None,
        tokenizer: Any = None,
        missing: Sequence[str] = (),
        created: str | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        given = dict(locals())
        for name in ("self", "prompts", "budget", "token_texts", "tokenizer", "path"):
            del given[name]
        self._header = checked_header(given | {"created": now() if created is None else created})
        self._texts = Texts(tokenizer, token_texts)
        self._requests = Requests()
        self._forwards: list[Placed] = []
        self._moves: list[Placed] = []
        self._rounds: list[RoundEnd] = []
        self._lines: list[Any] = []  # what makes a line, as it came
        self._steps: dict[tuple[int, str, str], int] = {}
        self._latest = ""  # the latest phase of the round that is going on, "" for none
        checked = _prompts(prompts)
        budgets = _budgets(budget, len(checked))
        self._file = None if path is None else LogFile(path)
        self._put(header_line(self._header))
        if self._texts.known:
            self._put(texts_line(dict(self._texts.known)))
        for prompt, most in zip(checked, budgets, strict=True):
            self.add_request(prompt, most)

    def __repr__(self) -> str:
        counts = f"{self._requests.count} requests, {len(self._rounds)} rounds"
        return f"TraceWriter({self._header['decoder']}, {counts})"

    def add_request(self, prompt: Sequence[int] | Array, budget: int | None = None) -> int:
        """Add a request that was not among the prompts. Return its number.

        Args:
            prompt: its token ids, one or more.
            budget: how many new tokens it may get.
        """
        tokens = _prompt("prompt", prompt)
        check_limits("prompt", tokens, 0, self._header["vocabulary_size"] - 1)
        if budget is not None:
            budget = require_int("budget", budget, maximum=2**31 - 1)
        self._tell_texts(tokens)
        self._put(request_line(tokens, budget))
        return self._requests.add(tokens, budget)

    def add_texts(self, texts: Mapping[Any, str]) -> None:
        """Add the texts of tokens, {id: text}."""
        self._put(texts_line(self._texts.add(texts)))

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
        valid: Any = None,
        nodes: Any = None,
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
            valid: bool (b, q), False for padding; None for all tokens with an index >= 0.
            nodes: (b, q), for trees: 1 + the number of the draft that a token is, else 0.
            phase: "schedule" for a prefill, "draft" or "verify". None: a forward that stops before
                every row's pending token, the last one of n, is a prefill.
        """
        given = {
            "rows": rows,
            "requests": requests,
            "tokens": tokens,
            "indices": indices,
            "positions": positions,
            "slots": slots,
            "visible": visible,
            "valid": valid,
            "nodes": nodes,
            "phase": phase,
        }
        event = read_forward(self._limits, model, given)
        if phase is None and event.phase == "draft" and self._latest in _LATE:
            # The draft reads what was accepted, once the target has judged it.
            event = replace(event, phase="synchronise")
        self._check_order(event.phase)
        self._tell_texts(event.token)
        self._place(event, self._forwards, len(self._rounds))

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
        given = {
            "from_row": from_row,
            "from_slot": from_slot,
            "to_row": to_row,
            "to_slot": to_slot,
            "length": length,
        }
        number = len(self._rounds)
        may_follow = number > 0 and not self._latest  # right behind the end of a round
        if phase is None:
            within = np.array_equal(np.ravel(from_row), np.ravel(to_row))
            late = self._latest in _LATE or (may_follow and within)
            phase = "synchronise" if late else "schedule"
        event = read_moves(model, phase, given)
        if may_follow and event.phase == "synchronise":
            self._place(event, self._moves, number - 1)
            return
        self._check_order(event.phase)
        self._place(event, self._moves, number)

    def round(
        self,
        *,
        rows: Any,
        requests: Any,
        drafts: Any,
        accepted: Any,
        emitted: Any,
        finished: Any = None,
        choices: Any = None,
        draft_logprobs: Any = None,
        target_logprobs: Any = None,
        target_top: Any = None,
        draft_top: Any = None,
        verified: Any = None,
        discarded: Any = None,
        parents: Any = None,
        path: Any = None,
        starts: Any = None,
        pending: Any = None,
        starts_after: Any = None,
        pending_after: Any = None,
        slots: Any = None,
        ms: Mapping[str, float] | None = None,
    ) -> None:
        """Log what a round did to the rows of its batch, and end the round.

        Args:
            rows, requests: (b,), as in `forward`.
            drafts: the drafts of each row, up to K; -1 behind them, or shorter lists.
            accepted: (b,), how many of them were accepted.
            emitted: what each row gains, in the same form: accepted drafts, then the target's own
                token, without what is cut off by EOS or the budget.
            finished: bool (b,), whether the request ends here.
            choices: (b, K+1), greedy only: the target's choice after the pending token and after
                each draft.
            draft_logprobs, target_logprobs: (b, K), log-probabilities of the drafts.
            target_top, draft_top: (ids, logprobs) of the likeliest tokens in place of `choices`,
                each (b, K+1, k) and (b, K, j).
            verified: (b,), how many drafts the target read; None for all.
            discarded: (b,), how many right tokens were thrown away to keep rows together.
            parents, path: (b, K), for trees: the draft that each draft follows, -1 for the pending
                token; and the accepted drafts in order.
            starts, pending: (b,), the slots of each row's first token and of its pending one before
                the round; starts_after, pending_after: after it. None: as the forwards and moves
                say.
            slots: how many columns of the cache the verification saw; None: as the forwards say.
            ms: milliseconds of the phases that were measured.
        """
        given = dict(locals())
        del given["self"]
        event = read_round(self._limits, given)
        self._tell_texts(event.values["drafts"], event.values["emitted"])
        self._tell_texts(*(event.values[n] for n in _CANDIDATES if n in event.values))
        self._put(event)
        self._rounds.append(event)
        self._requests.extend(event)
        self._latest = ""

    def trace(self) -> Trace:
        """Return the record of all rounds that have ended.

        Raises ValueError if none has.
        """
        if not self._rounds:
            raise ValueError("rounds: no round has ended yet, got 0; call round(...) first")
        events = self._forwards, self._moves, self._rounds
        return to_trace(self._header, self._requests, *events, self._texts.known)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the log to `path`, whole or not at all: a line of JSON for each event.

        `trace().save(path)` writes the record itself, which is smaller.

        Raises:
            WriteError: the file cannot be written.
        """
        lines = [each if isinstance(each, dict) else event_line(each) for each in self._lines]
        write(path, b"".join(as_bytes(line) for line in lines))

    @property
    def _limits(self) -> Limits:
        header = self._header
        lengths = np.array(self._requests.lengths, np.int64)
        return Limits(lengths, header["num_draft_tokens"], header["vocabulary_size"])

    def _check_order(self, phase: str) -> None:
        """Phases of a round follow one another, as the record replays them."""
        if self._latest and PHASES.index(phase) < PHASES.index(self._latest):
            raise ValueError(
                f"phase must not be before {self._latest}, which this round has reached, "
                f"got {phase!r}; call round(...) at the end of each round"
            )
        self._latest = phase

    def _place(self, event: Forward | Moves, events: list[Placed], number: int) -> None:
        key = (number, event.phase, event.model)
        step = self._steps.get(key, 0)
        self._steps[key] = step + 1
        events.append(Placed(event, number, step))
        self._put(event)

    def _tell_texts(self, *tokens: Array) -> None:
        new = self._texts.new(*tokens)
        if new:
            self._put(texts_line(new))

    def _put(self, line: dict[str, Any] | Forward | Moves | RoundEnd) -> None:
        self._lines.append(line)
        if self._file is not None:
            self._file.append(line if isinstance(line, dict) else event_line(line))


def _prompt(name: str, value: Any) -> Array:
    tokens = as_array(name, value, "iu", "a list of token ids")
    if tokens.ndim != 1 or tokens.size == 0:
        raise ValueError(f"{name} must hold one token id or more, got {short(value)}; pass ids")
    return tokens


def _prompts(prompts: Any) -> list[Array]:
    if not is_list(prompts) and not isinstance(prompts, np.ndarray):
        raise ValueError(
            f"prompts must be a list of lists of token ids, got {short(prompts)}; pass ids"
        )
    return [_prompt(f"prompts[{i}]", prompt) for i, prompt in enumerate(prompts)]


def _budgets(budget: Any, count: int) -> list[int | None]:
    if budget is None:
        return [None] * count
    if not hasattr(budget, "__len__"):
        return [require_int("budget", budget, maximum=2**31 - 1)] * count
    return [int(each) for each in integers("budget", budget, (count,), least=1)]
