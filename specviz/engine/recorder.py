"""From phase events to records. `Tally` always counts; `Recorder` also keeps what a `Trace` needs, and only if asked for.

Without a recorder nothing is copied and nothing waits for the device: a tally reads what the loop has told the host anyway.
"""

from collections import Counter, defaultdict

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from specviz.engine.events import Accepted, Drafted, Event, Verified
from specviz.engine.kv.cache import Feed
from specviz.engine.kv.moves import Move
from specviz.engine.run import Run
from specviz.record.schema import COLUMNS, MODELS, PHASES

TOP = 5  # alternatives kept for each verified and each drafted token
Table = dict[str, np.ndarray]


class Tally:
    """Counts per round and row, and the finished outputs.

    Attributes:
        outputs: new tokens of each finished request, by its index.
        broken: finished requests whose logits were no numbers.
    """

    def __init__(self, run: Run) -> None:
        self.outputs: dict[int, list[int]] = {}
        self.broken: set[int] = set()
        self._rounds: dict[str, list[int]] = defaultdict(list)
        self._rows: dict[str, list[int]] = defaultdict(list)
        self._pool: dict[str, list[int]] = defaultdict(list)

    def see(self, event: Event) -> None:
        """Take one phase event."""
        rows = event.state.batch.rows
        if event.phase == "schedule":
            facts = {
                "batch": len(rows),
                "slots": event.state.window,
                "decision": event.state.decision,
            }
            for name, value in facts.items():
                self._rounds[name].append(value)
            for i, (row, start) in enumerate(zip(rows, event.state.layout.starts, strict=False)):
                facts = {
                    "round": event.round,
                    "row": i,
                    "request": row.request.index,
                    "length": row.length,
                    "start": start,
                }
                facts["pending"] = event.state.layout.pending(i, row.length)
                for name, value in facts.items():
                    self._rows[name].append(value)
            self._see_pool(event)
        elif event.phase == "accept":
            for row in rows:
                self._rows["drafted"].append(event.state.num_draft_tokens if row.gained else 0)
                self._rows["accepted"].append(row.accepted)
                self._rows["gained"].append(row.gained)
                self._rows["discarded"].append(row.discarded)
                self._rows["finished"].append(row.finished)
                if row.finished:
                    self.outputs[row.request.index] = row.output
                    if row.broken:
                        self.broken.add(row.request.index)
        elif event.phase == "synchronise":
            self._rows["start_after"] += event.state.layout.starts[: len(rows)]
            self._rows["pending_after"] += [
                event.state.layout.pending(i, row.length) for i, row in enumerate(rows)
            ]

    def _see_pool(self, event: Event) -> None:
        """Who is in the pool, for a strategy that has one: the batch and those that wait."""
        if not event.state.passed_over:
            return
        for i, row in enumerate(event.state.batch.live):
            facts = {
                "round": event.round,
                "row": i,
                "request": row.request.index,
                "length": row.length,
            }
            facts |= {
                "waited": event.state.passed_over[row.request.index],
                "chosen": i < len(event.state.batch),
            }
            for name, value in facts.items():
                self._pool[name].append(value)

    def cut(self, rounds: int) -> None:
        """Forget what came after the first `rounds` rounds, be it half noted."""
        entries, members = (
            sum(self._rounds["batch"][:rounds]),
            sum(number < rounds for number in self._pool["round"]),
        )
        for columns, count in (
            (self._rounds, rounds),
            (self._rows, entries),
            (self._pool, members),
        ):
            for column in columns.values():
                del column[count:]
        ended = {
            request
            for request, finished in zip(self._rows["request"], self._rows["finished"], strict=True)
            if finished
        }
        self.outputs, self.broken = (
            {i: tokens for i, tokens in self.outputs.items() if i in ended},
            self.broken & ended,
        )

    def written(self, run: Run) -> dict[int, list[int]]:
        """New tokens of each request so far, by its index: of those that ended and of those of `run`, what the rounds noted here gave."""
        texts = {request.index: list(request.written) for request in run.requests}
        texts |= {row.request.index: row.output for row in run.state.batch.live} | self.outputs
        counts: Counter[int] = Counter()
        for request, gained in zip(self._rows["request"], self._rows["gained"], strict=True):
            counts[request] += gained
        return {index: tokens[: counts[index]] for index, tokens in texts.items()}

    def rounds(self, milliseconds: np.ndarray) -> Table:
        """The table `rounds` of a trace."""
        table: Table = {
            name: np.array(self._rounds[name], dtype=np.int32) for name in ("batch", "slots")
        }
        table |= {f"{phase}_ms": milliseconds[:, i].copy() for i, phase in enumerate(PHASES)}
        return table | {"decision": np.array(self._rounds["decision"], dtype=np.uint8)}

    def rows(self) -> Table:
        """The columns of a trace's table `rows` that are known without recording."""
        return {
            name: np.array(self._rows[name], form.dtype)
            for name, form in COLUMNS["rows"].items()
            if form.shape == ("N",)
        }

    def pool(self) -> Table:
        """The table `pool` of a trace."""
        names = ("round", "row", "request", "length", "waited", "chosen")
        return {
            name: np.array(self._pool[name], dtype=np.uint8 if name == "chosen" else np.int32)
            for name in names
        }


class Recorder:
    """Keeps every token fed, every block moved, and what target and draft said; makes the tables `rows`, `feeds`, `holes`, `moves`."""

    def __init__(self, run: Run) -> None:
        self._k, self._top = run.num_draft_tokens, min(TOP, run.pair.vocabulary_size)
        self._said: dict[str, list[Tensor]] = defaultdict(list)
        self._drafts: Tensor
        self._feeds: list[tuple[tuple[int, int, int, int], Tensor, dict[str, Tensor]]] = []
        self._holes: list[tuple[int, Tensor]] = []
        self._moves: list[tuple[int, ...]] = []
        self.follow(run)

    def follow(self, run: Run) -> None:
        """Take the events of this run from now on."""
        for cache in run.state.caches.values():
            cache.log = []

    def cut(self, rounds: int) -> None:
        """Forget what came after the first `rounds` rounds, be it half noted."""
        for values in self._said.values():
            del values[rounds:]
        self._feeds = [feed for feed in self._feeds if feed[0][0] < rounds]
        self._holes = [holes for holes in self._holes if holes[0] < len(self._feeds)]
        self._moves = [move for move in self._moves if move[0] < rounds]

    def see(self, event: Event) -> None:
        """Take one phase event."""
        for model, name in enumerate(MODELS):
            cache = event.state.caches.get(name)
            if cache is not None and cache.log is not None:
                for step, entry in enumerate(cache.log):
                    self._take(entry, (event.round, PHASES.index(event.phase), step, model))
                cache.log = []
        if isinstance(event, Drafted):
            self._say_draft(event)
        elif isinstance(event, Verified):
            self._say_target(event.logits)
        elif isinstance(event, Accepted):
            width = event.outcome.emitted.shape[1]
            beyond = (
                torch.arange(width, device=event.outcome.gained.device)
                >= event.outcome.gained[:, None]
            )
            self._say("emitted", event.outcome.emitted.masked_fill(beyond, -1))

    def _take(self, entry: Feed | list[Move], where: tuple[int, int, int, int]) -> None:
        if isinstance(entry, list):
            self._moves += [(*where, *move) for move in entry]
            return
        slot = torch.arange(entry.visible.shape[-1], device=entry.visible.device)
        start = torch.where(entry.visible, slot, len(slot)).amin(-1)  # (b, q)
        stop = torch.where(entry.visible, slot + 1, 0).amax(-1)
        if (entry.visible.sum(-1) != stop - start).any():
            self._holes.append((len(self._feeds), entry.visible[entry.valid]))
        columns = {
            "row": entry.rows[:, None].expand_as(entry.tokens),
            "token": entry.tokens,
            "index": entry.indices,
        }
        served = torch.tensor(entry.requests, device=entry.rows.device)
        columns["request"] = served[entry.rows][:, None].expand_as(entry.tokens)
        columns |= {
            "position": entry.positions,
            "slot": entry.slots,
            "visible_start": start,
            "visible_stop": stop,
        }
        self._feeds.append(
            (where, entry.valid, columns)
        )  # not the mask itself, which is the largest part

    def _say_draft(self, event: Drafted) -> None:
        self._drafts, logits = event.draft.tokens, event.draft.logits
        self._say("drafts", self._drafts)
        if logits is None:
            logits = torch.full(
                (len(self._drafts), 0, self._top), torch.nan, device=self._drafts.device
            )
        log_q = logits.log_softmax(-1)  # (B, K, V)
        self._say(
            "draft_logprob", log_q.gather(2, self._drafts[:, : log_q.shape[1], None])[:, :, 0]
        )
        self._keep_top("draft", log_q, logits.argmax(-1))

    def _say_target(self, logits: Tensor) -> None:
        log_p = logits.float().log_softmax(-1)  # (B, K+1, V)
        self._say("target_logprob", log_p[:, :-1].gather(2, self._drafts[:, :, None])[:, :, 0])
        self._keep_top("target", log_p, logits.float().argmax(-1))

    def _keep_top(self, model: str, log_probabilities: Tensor, chosen: Tensor) -> None:
        """The best candidates, `chosen` (b, q) first: among equals, `topk` may name another one first."""
        top = log_probabilities.topk(self._top, -1)
        ids = torch.where(top.indices == chosen[:, :, None], top.indices[:, :, :1], top.indices)
        ids[:, :, 0] = chosen
        self._say(f"{model}_top_ids", ids)
        self._say(f"{model}_top_logprobs", top.values)

    def _say(self, name: str, values: Tensor) -> None:
        """Keep values (b, q, ...) of a round, filled up to what the largest K needs: tokens with -1, log-probabilities with NaN."""
        missing = self._k + (name == "emitted" or name.startswith("target_top")) - values.shape[1]
        filling = torch.nan if "logprob" in name else -1
        self._said[name].append(
            pad(values, (0, 0) * (values.ndim - 2) + (0, missing), value=filling)
        )

    def rows(self, tally: Table) -> Table:
        """The table `rows`: the tally's columns with what was drafted, said and emitted."""
        if not len(tally["round"]):  # interrupted before the first round was over
            sizes = {"N": 0, "K": self._k, "K+1": self._k + 1, "k": 0, "j": 0}
            return {
                name: np.zeros([sizes[letter] for letter in form.shape], form.dtype)
                for name, form in COLUMNS["rows"].items()
            }
        said = {name: torch.cat(values).cpu().numpy() for name, values in self._said.items()}
        return tally | {
            name: values.astype(np.float32 if "logprob" in name else np.int32)
            for name, values in said.items()
        }

    def moves(self) -> Table:
        """The table `moves`."""
        names = ["round", "phase", "step", "model", *Move._fields]
        columns = np.array(self._moves, dtype=np.int32).reshape(-1, len(names))
        return {name: columns[:, i].astype(_dtype(name)) for i, name in enumerate(names)}

    def feeds(self) -> tuple[Table, Table]:
        """The tables `feeds` and `holes`."""
        parts: dict[str, list[np.ndarray]] = defaultdict(list)
        first = [0]
        for where, valid, columns in self._feeds:
            keep = valid.cpu().numpy()
            for name, value in columns.items():
                parts[name].append(value.cpu().numpy()[keep])
            for name, number in zip(("round", "phase", "step", "model"), where, strict=True):
                parts[name].append(np.full(keep.sum(), number))
            first.append(first[-1] + int(keep.sum()))
        names = (
            "round",
            "phase",
            "step",
            "model",
            "row",
            "request",
            "token",
            "index",
            "position",
            "slot",
            "visible_start",
            "visible_stop",
        )
        table: Table = {
            name: np.concatenate(parts[name]).astype(_dtype(name))
            if parts[name]
            else np.zeros(0, _dtype(name))
            for name in names
        }
        return table, self._hole_table(first)

    def _hole_table(self, first: list[int]) -> Table:
        found: list[tuple[int, int, int]] = []
        for number, visible in self._holes:  # (tokens, w)
            for i, mask in enumerate(visible.cpu().numpy()):
                edges = np.flatnonzero(
                    np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))
                )
                found += [
                    (first[number] + i, int(a), int(b))
                    for a, b in zip(edges[1:-1:2], edges[2::2], strict=True)
                ]
        feed, start, stop = np.array(found, dtype=np.int32).reshape(-1, 3).T
        return {"feed": feed, "start": start, "stop": stop}


def _dtype(name: str) -> type:
    return np.uint8 if name in ("phase", "model") else np.int32
