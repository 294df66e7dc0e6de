"""From phase events to the tables of a run and, if one was requested, of its record.

Counts of rounds and rows, and finished outputs, are always kept; they cost no copy and no wait for
the device, because the loop has them on the host anyway. A record also needs what was fed, moved,
drafted and verified. That stays on the device until the round has ended, and is copied at once.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.engine.drafters.base import Draft
from specviz.engine.events import Accepted, Drafted, Event, Verified
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.run import Run
from specviz.engine.state import State
from specviz.record.builder import BLOCK, NO_HOLES, Builder, Round, ranges_of
from specviz.record.schema import COLUMNS, MODELS, PHASES, Array, Table

_DRAFTING = (PHASES.index("draft"), PHASES.index("verify"))  # phases in which drafts are fed
TOP = 5  # alternatives kept for each verified and each drafted token


class Recorder:
    """Takes the events of a run.

    Attributes:
        keeps: whether it keeps what a record needs.
        builder: of the record; its rounds are those that are complete.
        outputs: new tokens of each finished request, by its index.
        nonfinite: finished requests whose logits were non-finite.
    """

    def __init__(self, run: Run, *, record: bool) -> None:
        self.keeps = record
        self.builder = Builder(run.max_draft_tokens)
        self.outputs: dict[int, list[int]] = {}
        self.nonfinite: set[int] = set()
        self._top = min(TOP, run.pair.vocabulary_size)
        # Of the running round:
        self._rows: dict[str, Any] = {}
        self._facts: dict[str, Any] = {}
        self._pool: dict[str, Any] = {}
        self._draft: Draft
        self._held: dict[str, Tensor] = {}  # by column of `rows`, on the device
        self._log: list[tuple[int, int, Any]] = []  # (model, phase, a forward or moves)
        self.follow(run)

    def follow(self, run: Run) -> None:
        """Take the events of this run from now on."""
        if self.keeps:
            for cache in run.state.caches.values():
                cache.log = []

    @property
    def rounds(self) -> int:
        """How many rounds are complete."""
        return len(self.builder.rounds)

    def cut(self) -> None:
        """Forget a round that is not complete."""
        self.builder.cut()
        rows = self.rows()
        finished = set(rows["request"][rows["finished"] == 1].tolist())
        self.outputs = {i: self.outputs[i] for i in self.outputs.keys() & finished}
        self.nonfinite &= finished

    def observe(self, event: Event) -> None:
        """Take one phase event."""
        state = event.state
        if event.phase == "schedule":
            self._begin(state)
        if self.keeps:
            self._take_log(state, PHASES.index(event.phase))
        if isinstance(event, Drafted) and self.keeps:
            self._hold_draft(event.draft)
        elif isinstance(event, Verified) and self.keeps:
            self._hold_target(event.logits)
        elif isinstance(event, Accepted):
            self._accept(event)
        elif event.phase == "synchronise":
            self._end(state)

    def _begin(self, state: State) -> None:
        rows, layout = state.batch.rows, state.layout
        self._rows = {
            "row": range(len(rows)),
            "request": [row.request.index for row in rows],
            "length": [row.length for row in rows],
            "start": [layout.starts[i] for i in range(len(rows))],
            "pending": [layout.pending(i, row.length) for i, row in enumerate(rows)],
        }
        self._facts = {"slots": state.window, "decision": state.decision}
        self._pool = {}
        if state.passed_over:  # only strategies with a pool fill it
            live = state.batch.live
            self._pool = {
                "row": range(len(live)),
                "request": [row.request.index for row in live],
                "length": [row.length for row in live],
                "waited": [state.passed_over[row.request.index] for row in live],
                "chosen": [i < len(rows) for i in range(len(live))],
            }
        self._held, self._log = {}, []

    def _accept(self, event: Accepted) -> None:
        state = event.state
        rows = state.batch.rows
        self._rows["drafted"] = [state.num_draft_tokens if row.gained else 0 for row in rows]
        for name in ("verified", "accepted", "gained", "discarded", "finished"):
            self._rows[name] = [getattr(row, name) for row in rows]
        self._facts["capacity"] = state.draft_capacity
        if not self.keeps:
            return
        outcome, parents = event.outcome, self._draft.parents
        number = torch.arange(outcome.emitted.shape[1], device=outcome.emitted.device)  # (K+1,)
        gained = outcome.gained[:, None]
        self._held["emitted"] = outcome.emitted.masked_fill(number >= gained, -1)
        if parents is not None or outcome.path is not None:
            number = number[:-1].expand(len(gained), -1)  # (B, K)
            # A row that has finished counts as having drafted nothing.
            parents = number - 1 if parents is None else parents
            self._held["parents"] = parents.masked_fill(gained == 0, -1)
            path = number if outcome.path is None else outcome.path
            is_accepted = (number < outcome.accepted[:, None]) & (gained > 0)
            self._held["path"] = path.masked_fill(~is_accepted, -1)

    def _end(self, state: State) -> None:
        rows, layout = state.batch.rows, state.layout
        self._rows["start_after"] = [layout.starts[i] for i in range(len(rows))]
        self._rows["pending_after"] = [layout.pending(i, row.length) for i, row in enumerate(rows)]
        for row in rows:
            if row.finished:
                self.outputs[row.request.index] = row.output
                if row.ended_nonfinite:
                    self.nonfinite.add(row.request.index)
        columns = {name: np.array(values) for name, values in self._rows.items()}
        if self.keeps:
            columns |= self._copy()
        pool = {name: np.array(values) for name, values in self._pool.items()}
        self.builder.round(Round(columns, self._facts, pool))

    def _take_log(self, state: State, phase: int) -> None:
        """Take what the models have read and moved since the event before."""
        for model, name in enumerate(MODELS):
            cache = state.caches.get(name)
            if cache is None or cache.log is None:
                continue
            for entry in cache.log:
                held = _held(entry, cache) if isinstance(entry, Feed) else np.array(entry)
                self._log.append((model, phase, held))
            cache.log = []  # what comes next belongs to the next phase

    def _hold_draft(self, draft: Draft) -> None:
        self._draft = draft
        self._held["drafts"] = draft.tokens  # (B, K)
        if draft.scores is not None:
            self._held["scores"] = draft.scores
        logits = draft.logits  # (B, K, V)
        if logits is None:
            # Proposals without logits: no column is filled, so all become NaN and -1.
            logits = torch.full((len(draft.tokens), 0, self._top), torch.nan)
            logits = logits.to(draft.tokens.device)
        log_q = logits.log_softmax(-1)
        drafts = draft.tokens[:, : log_q.shape[1], None]
        self._held["draft_logprob"] = log_q.gather(2, drafts)[:, :, 0]
        self._hold_top("draft", log_q, logits.argmax(-1))

    def _hold_target(self, logits: Tensor) -> None:
        logits = logits.float()
        log_p = logits.log_softmax(-1)  # (B, K+1, V)
        drafts, parents, lengths = self._draft.tokens, self._draft.parents, self._draft.lengths
        before = log_p[:, :-1]  # (B, K, V), after what each draft follows
        if parents is not None:
            rows = torch.arange(len(drafts), device=drafts.device)
            before = log_p[rows[:, None], parents + 1]
        of_drafts = before.gather(2, drafts[:, :, None])[:, :, 0]  # (B, K)
        beyond = None
        if lengths is not None:
            # Behind the drafts that are verified, the target computed nothing that counts.
            column = torch.arange(logits.shape[1], device=logits.device)
            beyond = column > lengths[:, None]  # (B, K+1)
            of_drafts = of_drafts.masked_fill(beyond[:, 1:], torch.nan)
        self._held["target_logprob"] = of_drafts
        self._hold_top("target", log_p, logits.argmax(-1), beyond)

    def _hold_top(
        self, model: str, log_probabilities: Tensor, choice: Tensor, beyond: Tensor | None = None
    ) -> None:
        """Hold the best candidates of logits (b, q, V), `choice` (b, q) first.

        beyond: bool (b, q), the places that have none.
        """
        # Among equals, `topk` may put another one first than `argmax`, which the run went by. If so
        # the two trade places.
        top = log_probabilities.topk(self._top, -1)
        ids = torch.where(top.indices == choice[:, :, None], top.indices[:, :, :1], top.indices)
        ids[:, :, 0] = choice
        values = top.values
        if beyond is not None:
            ids = ids.masked_fill(beyond[:, :, None], -1)
            values = values.masked_fill(beyond[:, :, None], torch.nan)
        self._held[f"{model}_top_ids"] = ids
        self._held[f"{model}_top_logprobs"] = values

    def _copy(self) -> Table:
        """Give the builder what was read and moved; return what was held of the rows, (B, ...)."""
        forwards = [held for _, _, held in self._log if isinstance(held, dict)]
        tensors = [t for held in forwards for t in held["tensors"].values()]
        copied = iter(to_host([*tensors, *self._held.values()]))
        for model, phase, held in self._log:
            if isinstance(held, dict):
                columns = {name: next(copied) for name in held["tensors"]}
                self.builder.forward(model, phase, *_fed(held, columns))
            else:
                self.builder.move(model, phase, held.reshape(-1, len(BLOCK)))
        found = {name: next(copied).copy() for name in self._held}  # without the forwards beside it
        self._held, self._log = {}, []
        return found

    def written(self, run: Run) -> dict[int, list[int]]:
        """Return the new tokens of each request so far, by its index.

        They are those of finished requests and of the requests of `run`, as far as the complete
        rounds go.
        """
        # From the oldest knowledge to the newest: before this run, in its live rows, finished.
        texts = {request.index: list(request.written) for request in run.requests}
        texts |= {row.request.index: row.output for row in run.state.batch.live}
        texts |= self.outputs
        # A live row may hold tokens of a round that failed later.
        counts: Counter[int] = Counter()
        for ended in self.builder.rounds:
            for request, gained in zip(ended.rows["request"], ended.rows["gained"], strict=True):
                counts[int(request)] += int(gained)
        return {index: tokens[: counts[index]] for index, tokens in texts.items()}

    def facts(self, milliseconds: Array) -> Table:
        """Return the table `rounds` of a trace. `milliseconds` (rounds, 5): of each phase."""
        for ended, times in zip(self.builder.rounds, milliseconds, strict=True):
            ended.facts["ms"] = times
        return self.builder.typed("rounds", self.builder.facts())

    def rows(self) -> Table:
        """Return the columns of a trace's table `rows` that are known without recording."""
        forms = {name: form for name, form in COLUMNS["rows"].items() if form.shape == ("N",)}
        found = self.builder.rows(forms)
        nothing = np.zeros(0)
        return {name: found.get(name, nothing).astype(each.dtype) for name, each in forms.items()}

    def tables(self, prompts: Sequence[Sequence[int]], budgets: Sequence[int]) -> dict[str, Table]:
        """Return the tables of a trace, with these requests."""
        self.builder.prompts, self.builder.budgets = list(prompts), list(budgets)
        return self.builder.tables()


def _held(feed: Feed, cache: CachedModel) -> dict[str, Any]:
    """Return what is kept of a feed. Its mask becomes ranges, unless slots in them are hidden."""
    visible = feed.visible.view(torch.uint8)  # (b, q, w)
    tensors = {
        "row": feed.rows,
        "valid": feed.valid,
        "token": feed.tokens,
        "index": feed.indices,
        "position": feed.positions,
        "slot": feed.slots,
        "visible_start": visible.argmax(-1),
        "visible_stop": visible.shape[-1] - visible.flip(-1).argmax(-1),
        "count": visible.sum(-1),
    }
    if feed.nodes is not None:
        tensors["node"] = feed.nodes
    if feed.after is not None:
        tensors["after"] = feed.after
    narrowed = cache.narrowed(feed)
    if narrowed is not None:
        window_start = narrowed.view(torch.uint8).argmax(-1)
        tensors["window_offset"] = window_start - tensors["visible_start"]
    return {"tensors": tensors, "mask": feed.visible, "requests": np.array(feed.requests)}


def _fed(held: dict[str, Any], columns: Table) -> tuple[Table, Array]:
    """Return the columns of a forward (m,), and its holes."""
    valid = columns.pop("valid").astype(bool)  # (b, q)
    row = columns.pop("row")
    columns["request"] = np.broadcast_to(held["requests"][row][:, None], valid.shape)
    columns["row"] = np.broadcast_to(row[:, None], valid.shape)
    if "after" in columns:
        columns["after"] = np.broadcast_to(columns["after"][:, None], valid.shape)
    columns = {name: values[valid] for name, values in columns.items()}
    start, stop, count = (columns[name] for name in ("visible_start", "visible_stop", "count"))
    del columns["count"]
    if not (count < stop - start).any():
        return columns, NO_HOLES
    seen = ranges_of(held["mask"].cpu().numpy()[valid], columns["slot"])
    return columns | {"visible_start": seen.start, "visible_stop": seen.stop}, seen.holes


def to_host(tensors: Sequence[Tensor]) -> list[Array]:
    """Copy tensors to the host, those of one device at once: ints as int64, floats as float32."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, tensor in enumerate(tensors):
        groups[tensor.device, tensor.is_floating_point()].append(i)
    found: dict[int, Array] = {}
    for (_, is_float), members in groups.items():
        dtype = torch.float32 if is_float else torch.int64
        flat = torch.cat([tensors[i].reshape(-1).to(dtype) for i in members]).cpu().numpy()
        ends = np.cumsum([tensors[i].numel() for i in members])[:-1]
        for i, values in zip(members, np.split(flat, ends), strict=True):
            found[i] = values.reshape(tensors[i].shape)
    return [found[i] for i in range(len(tensors))]
