"""`TraceWriter`: a log of any engine, one call a forward, a move and a round.

Contract: says what each call takes. Not known here: how it is checked and kept, which is in
`journal`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from specviz.record.log.header import checked_header, now
from specviz.record.log.journal import Journal, check_budgets, check_prompts
from specviz.record.log.lines import LogFile, as_bytes
from specviz.record.log.texts import Texts
from specviz.record.trace import Trace
from specviz.util.files import write
from specviz.util.text import count

_NOT_IN_HEADER = ("self", "prompts", "budget", "token_texts", "tokenizer", "path")


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
        header = {name: value for name, value in given.items() if name not in _NOT_IN_HEADER}
        header = checked_header(header | {"created": now() if created is None else created})
        checked = check_prompts(prompts, header["vocabulary_size"])
        budgets = check_budgets(budget, len(checked))
        texts = Texts(tokenizer, token_texts)
        self._journal = Journal(header, texts, None if path is None else LogFile(path))
        for prompt, most in zip(checked, budgets, strict=True):
            self._journal.request(prompt, most)

    def __repr__(self) -> str:
        journal = self._journal
        requests = count(journal.requests.count, "request")
        rounds = count(len(journal.rounds), "round")
        return f"TraceWriter({journal.header['decoder']}, {requests}, {rounds})"

    def add_request(self, prompt: Sequence[int], budget: int | None = None) -> int:
        """Add a request that was not among the prompts. Return its number.

        Args:
            prompt: its token ids, one or more.
            budget: how many new tokens it may get.
        """
        return self._journal.request(prompt, budget)

    def add_texts(self, texts: Mapping[Any, str]) -> None:
        """Add the texts of tokens, {id: text}."""
        self._journal.texts(texts)

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
        self._journal.forward(dict(locals()))

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
        self._journal.move(dict(locals()))

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
        self._journal.round(dict(locals()))

    def trace(self) -> Trace:
        """Return the record of all rounds that have ended.

        Raises ValueError if none has.
        """
        if not self._journal.rounds:
            raise ValueError("rounds must have ended, got none; call round(...) after each round")
        return self._journal.trace()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the log to `path`, whole or not at all: a line of JSON for each event.

        `trace().save(path)` writes the record itself, which is smaller.

        Raises:
            WriteError: the file cannot be written.
        """
        write(path, b"".join(map(as_bytes, self._journal.lines())))
