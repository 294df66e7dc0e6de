"""From phase events to records. `Tally` always counts; `Recorder` also keeps what a `Trace` needs, and only if asked for.

Without a recorder nothing is copied and nothing waits for the device: a tally reads what the loop has told the host anyway.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.engine.cache import Feed, Move
from specviz.engine.decode import Run
from specviz.engine.events import Accepted, Drafted, Event, Verified
from specviz.trace import MODELS, PHASES

TOP = 5  # alternatives kept for each verified and each drafted token
Table = dict[str, np.ndarray]


class Stopwatch:
    """Times what happens between the consumer's asking for an event and getting it, so the consumer's own work is not counted.

    On CUDA it records events on the stream and waits for the device only when the times are read.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._spans: list[tuple[Any, Any]] = []

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass `events` on, timing each."""
        iterator = iter(events)
        while True:
            begin = self._mark()
            event = next(iterator, None)
            if event is None:
                return
            self._spans.append((begin, self._mark()))
            yield event

    def milliseconds(self) -> np.ndarray:
        """(rounds, 5) float32: time of each phase of each whole round."""
        if self._cuda:
            torch.cuda.synchronize()
            spans = [begin.elapsed_time(end) for begin, end in self._spans]
        else:
            spans = [(end - begin) * 1e3 for begin, end in self._spans]
        whole = len(spans) // len(PHASES) * len(PHASES)
        return np.array(spans[:whole], dtype=np.float32).reshape(-1, len(PHASES))


class Tally:
    """Counts per round and row, and the finished outputs.

    Attributes:
        outputs: new tokens of each finished request, by its index.
    """

    def __init__(self, run: Run) -> None:
        self.outputs: dict[int, list[int]] = {}
        self._rounds: dict[str, list[int]] = defaultdict(list)
        self._rows: dict[str, list[int]] = defaultdict(list)
        self._pool: dict[str, list[int]] = defaultdict(list)
        self._drafted = run.num_draft_tokens

    def see(self, event: Event) -> None:
        """Take one phase event."""
        rows = event.state.batch.rows
        if event.phase == "schedule":
            facts = {"batch": len(rows), "slots": event.state.window, "decision": event.state.decision}
            for name, value in facts.items():
                self._rounds[name].append(value)
            for i, (row, start) in enumerate(zip(rows, event.state.layout.starts, strict=False)):
                facts = {"round": event.round, "row": i, "request": row.request.index, "length": row.length, "start": start}
                facts["pending"] = event.state.layout.pending(i, row.length)
                for name, value in facts.items():
                    self._rows[name].append(value)
            self._see_pool(event)
        elif event.phase == "accept":
            for row in rows:
                self._rows["drafted"].append(self._drafted if row.gained else 0)
                self._rows["accepted"].append(row.accepted)
                self._rows["gained"].append(row.gained)
                self._rows["discarded"].append(row.discarded)
                self._rows["finished"].append(row.finished)
                if row.finished:
                    self.outputs[row.request.index] = row.output
        elif event.phase == "synchronise":
            self._rows["start_after"] += event.state.layout.starts[: len(rows)]
            self._rows["pending_after"] += [event.state.layout.pending(i, row.length) for i, row in enumerate(rows)]

    def _see_pool(self, event: Event) -> None:
        """Who is in the pool, for a strategy that has one: the batch and those that wait."""
        if not event.state.passed_over:
            return
        for i, row in enumerate(event.state.batch.live):
            facts = {"round": event.round, "row": i, "request": row.request.index, "length": row.length}
            facts |= {"waited": event.state.passed_over[row.request.index], "chosen": i < len(event.state.batch)}
            for name, value in facts.items():
                self._pool[name].append(value)

    def rounds(self, milliseconds: np.ndarray) -> Table:
        """The table `rounds` of a trace."""
        table: Table = {name: np.array(self._rounds[name], dtype=np.int32) for name in ("batch", "slots")}
        table |= {f"{phase}_ms": milliseconds[:, i].copy() for i, phase in enumerate(PHASES)}
        return table | {"decision": np.array(self._rounds["decision"], dtype=np.uint8)}

    def rows(self) -> Table:
        """The columns of a trace's table `rows` that are known without recording."""
        return {name: np.array(column, dtype=np.uint8 if name == "finished" else np.int32) for name, column in self._rows.items()}

    def pool(self) -> Table:
        """The table `pool` of a trace."""
        names = ("round", "row", "request", "length", "waited", "chosen")
        return {name: np.array(self._pool[name], dtype=np.uint8 if name == "chosen" else np.int32) for name in names}


class Recorder:
    """Keeps every token fed, every block moved, and what target and draft said; makes the tables `rows`, `feeds`, `holes`, `moves`."""

    def __init__(self, run: Run) -> None:
        self._k = run.num_draft_tokens
        self._said: dict[str, list[Tensor]] = defaultdict(list)
        self._feeds: list[tuple[tuple[int, int, int, int], Tensor, dict[str, Tensor]]] = []
        self._holes: list[tuple[int, Tensor]] = []
        self._moves: list[tuple[int, ...]] = []
        for cache in run.state.caches.values():
            cache.log = []

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
            beyond = torch.arange(self._k + 1, device=event.outcome.gained.device) >= event.outcome.gained[:, None]
            self._said["emitted"].append(event.outcome.emitted.masked_fill(beyond, -1))

    def _take(self, entry: Feed | list[Move], where: tuple[int, int, int, int]) -> None:
        if isinstance(entry, list):
            self._moves += [(*where, *move) for move in entry]
            return
        slot = torch.arange(entry.visible.shape[-1], device=entry.visible.device)
        start = torch.where(entry.visible, slot, len(slot)).amin(-1)  # (b, q)
        stop = torch.where(entry.visible, slot + 1, 0).amax(-1)
        if (entry.visible.sum(-1) != stop - start).any():
            self._holes.append((len(self._feeds), entry.visible[entry.valid]))
        columns = {"row": entry.rows[:, None].expand_as(entry.tokens), "token": entry.tokens, "index": entry.indices}
        served = torch.tensor(entry.requests, device=entry.rows.device)
        columns["request"] = served[entry.rows][:, None].expand_as(entry.tokens)
        columns |= {"position": entry.positions, "slot": entry.slots, "visible_start": start, "visible_stop": stop}
        self._feeds.append((where, entry.valid, columns))  # not the mask itself, which is the largest part

    def _say_draft(self, event: Drafted) -> None:
        tokens, logits = event.draft.tokens, event.draft.logits
        self._said["drafts"].append(tokens)
        if logits is None:
            return
        log_q = logits.log_softmax(-1)  # (B, K, V)
        self._said["draft_logprob"].append(log_q.gather(2, tokens[:, :, None])[:, :, 0])
        self._keep_top("draft", log_q, logits.argmax(-1))

    def _say_target(self, logits: Tensor) -> None:
        log_p = logits.float().log_softmax(-1)  # (B, K+1, V)
        drafts = self._said["drafts"][-1]
        self._said["target_logprob"].append(log_p[:, : self._k].gather(2, drafts[:, :, None])[:, :, 0])
        self._keep_top("target", log_p, logits.float().argmax(-1))

    def _keep_top(self, model: str, log_probabilities: Tensor, chosen: Tensor) -> None:
        """The best candidates, `chosen` (b, q) first: among equals, `topk` may name another one first."""
        top = log_probabilities.topk(min(TOP, log_probabilities.shape[-1]), -1)
        ids = torch.where(top.indices == chosen[:, :, None], top.indices[:, :, :1], top.indices)
        ids[:, :, 0] = chosen
        self._said[f"{model}_top_ids"].append(ids)
        self._said[f"{model}_top_logprobs"].append(top.values)

    def rows(self, tally: Table) -> Table:
        """The table `rows`: the tally's columns with what was drafted, said and emitted."""
        n, k = len(tally["round"]), self._k
        top = self._said["target_top_ids"][0].shape[-1] if self._said["target_top_ids"] else 0
        shapes: dict[str, tuple[int, ...]] = {"drafts": (n, k), "emitted": (n, k + 1), "draft_logprob": (n, k), "target_logprob": (n, k)}
        shapes |= {f"target_top_{name}": (n, k + 1, top) for name in ("ids", "logprobs")}
        shapes |= {f"draft_top_{name}": (n, k, top) for name in ("ids", "logprobs")}
        table = dict(tally)
        for name, shape in shapes.items():
            said = self._said[name]
            dtype, nothing = (np.float32, np.nan) if "logprob" in name else (np.int32, -1)
            table[name] = torch.cat(said).cpu().numpy().astype(dtype) if said else np.full(shape, nothing, dtype=dtype)
        return table

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
        names = ("round", "phase", "step", "model", "row", "request", "token", "index", "position", "slot", "visible_start", "visible_stop")
        table: Table = {
            name: np.concatenate(parts[name]).astype(_dtype(name)) if parts[name] else np.zeros(0, _dtype(name)) for name in names
        }
        return table, self._hole_table(first)

    def _hole_table(self, first: list[int]) -> Table:
        found: list[tuple[int, int, int]] = []
        for number, visible in self._holes:  # (tokens, w)
            for i, mask in enumerate(visible.cpu().numpy()):
                edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
                found += [(first[number] + i, int(a), int(b)) for a, b in zip(edges[1:-1:2], edges[2::2], strict=True)]
        feed, start, stop = np.array(found, dtype=np.int32).reshape(-1, 3).T
        return {"feed": feed, "start": start, "stop": stop}


def _dtype(name: str) -> type:
    return np.uint8 if name in ("phase", "model") else np.int32
