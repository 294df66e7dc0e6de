"""From phase events to the tables of a `Trace` that need copies: `rows`, `feeds`, `holes`, `moves`.

A recorder exists only if a record was requested. Without one, nothing is copied.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from specviz.engine.accept import Outcome
from specviz.engine.drafters.base import Draft
from specviz.engine.events import Accepted, Drafted, Event, Verified
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.moves import Move
from specviz.engine.run import Run
from specviz.record.chains import DERIVED
from specviz.record.schema import COLUMNS, MODELS, PHASES, Table

_DRAFTING = (PHASES.index("draft"), PHASES.index("verify"))  # phases in which drafts are fed
TOP = 5  # alternatives kept for each verified and each drafted token


class _Place(NamedTuple):
    """Where in a run something happened; `phase` and `model` are indices into PHASES and MODELS."""

    round: int
    phase: int
    step: int
    model: int


class _Fed(NamedTuple):
    """One forward's input: `valid` (b, q) bool, and columns of the table `feeds`, each (b, q)."""

    place: _Place
    valid: Tensor
    columns: dict[str, Tensor]


class Recorder:
    """Keep every token fed, every block moved, and the candidates of target and draft."""

    def __init__(self, run: Run) -> None:
        self._k = run.max_draft_tokens  # of the run: rounds with a smaller K are padded to it
        self._top = min(TOP, run.pair.vocabulary_size)
        self._rows: dict[str, list[Tensor]] = defaultdict(list)  # by column, one tensor a round
        self._draft: Draft  # of the running round
        self._feeds: list[_Fed] = []
        self._branches = False  # whether any drafts were fed as a tree
        self._holes: list[tuple[int, Tensor]] = []  # number of the feed, its mask (tokens, w)
        self._moves: list[tuple[int, ...]] = []
        self.follow(run)

    def follow(self, run: Run) -> None:
        """Take the events of this run from now on."""
        for cache in run.state.caches.values():
            cache.log = []

    def cut(self, rounds: int) -> None:
        """Forget what came after the first `rounds` rounds, half-noted rounds included."""
        for values in self._rows.values():
            del values[rounds:]
        self._feeds = [fed for fed in self._feeds if fed.place.round < rounds]
        self._holes = [holes for holes in self._holes if holes[0] < len(self._feeds)]
        self._moves = [move for move in self._moves if move[0] < rounds]

    def observe(self, event: Event) -> None:
        """Take one phase event."""
        for model, name in enumerate(MODELS):
            cache = event.state.caches.get(name)
            if cache is None or cache.log is None:
                continue
            for step, entry in enumerate(cache.log):
                place = _Place(event.round, PHASES.index(event.phase), step, model)
                if isinstance(entry, Feed):
                    self._add_feed(entry, place, event.state.batch.lengths)
                else:
                    self._moves += [(*place, *move) for move in entry]
            # What comes next belongs to the next phase.
            cache.log = []
        if isinstance(event, Drafted):
            self._add_draft(event)
        elif isinstance(event, Verified):
            self._add_target(event.logits)
        elif isinstance(event, Accepted):
            self._add_outcome(event.outcome)

    def _add_feed(self, feed: Feed, place: _Place, lengths: Tensor) -> None:
        """Keep a feed. Its mask, which would be the largest part of a record, becomes ranges.

        lengths: (R,), n of each row.
        """
        visible = feed.visible  # (b, q, w)
        slot = torch.arange(visible.shape[-1], device=visible.device)
        # Most masks are one range a query. The few others are kept, and become holes at the end.
        start = torch.where(visible, slot, len(slot)).amin(-1)  # (b, q)
        stop = torch.where(visible, slot + 1, 0).amax(-1)  # (b, q)
        has_holes = visible.sum(-1) != stop - start
        if has_holes.any():
            self._holes.append((len(self._feeds), visible[feed.valid]))
        requests = torch.tensor(feed.requests, device=feed.rows.device)[feed.rows]
        columns = {
            "row": feed.rows[:, None].expand_as(feed.tokens),
            "request": requests[:, None].expand_as(feed.tokens),
            "token": feed.tokens,
            "index": feed.indices,
            "node": _nodes(feed, lengths, place.phase),
            "position": feed.positions,
            "slot": feed.slots,
            "visible_start": start,
            "visible_stop": stop,
        }
        self._feeds.append(_Fed(place, feed.valid, columns))
        self._branches |= feed.nodes is not None

    def _add_draft(self, event: Drafted) -> None:
        self._draft = event.draft
        tokens = event.draft.tokens  # (B, K)
        self._add("drafts", tokens)
        scores = event.draft.scores
        if scores is None:
            scores = torch.full(tokens.shape, torch.nan, device=tokens.device)
        self._add("scores", scores)
        logits = event.draft.logits  # (B, K, V)
        if logits is None:
            # Proposals without logits: no column is filled, so all become NaN and -1.
            logits = torch.full((len(tokens), 0, self._top), torch.nan, device=tokens.device)
        log_q = logits.log_softmax(-1)
        drafts = tokens[:, : log_q.shape[1], None]
        self._add("draft_logprob", log_q.gather(2, drafts)[:, :, 0])
        self._add_top("draft", log_q, logits.argmax(-1))

    def _add_target(self, logits: Tensor) -> None:
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
        self._add("target_logprob", of_drafts)
        self._add_top("target", log_p, logits.argmax(-1), beyond)

    def _add_outcome(self, outcome: Outcome) -> None:
        emitted = outcome.emitted  # (B, K+1)
        column = torch.arange(emitted.shape[1], device=emitted.device)
        gained = outcome.gained[:, None]
        self._add("emitted", emitted.masked_fill(column >= gained, -1))
        number = column[:-1].expand(len(emitted), -1)  # (B, K)
        parents, path = self._draft.parents, outcome.path
        # A row that has finished counts as having drafted nothing.
        parents = number - 1 if parents is None else parents
        self._add("parents", parents.masked_fill(gained == 0, -1))
        path = number if path is None else path
        is_accepted = (number < outcome.accepted[:, None]) & (gained > 0)
        self._add("path", path.masked_fill(~is_accepted, -1))

    def _add_top(
        self, model: str, log_probabilities: Tensor, choice: Tensor, beyond: Tensor | None = None
    ) -> None:
        """Keep the best candidates of logits (b, q, V), `choice` (b, q) first.

        beyond: bool (b, q), the places that have none.
        """
        # Among equals, `topk` may put another one first than `argmax`, which the run went by. If so
        # the two trade places.
        top = log_probabilities.topk(self._top, -1)
        is_choice = top.indices == choice[:, :, None]
        ids = torch.where(is_choice, top.indices[:, :, :1], top.indices)
        ids[:, :, 0] = choice
        values = top.values
        if beyond is not None:
            ids = ids.masked_fill(beyond[:, :, None], -1)
            values = values.masked_fill(beyond[:, :, None], torch.nan)
        self._add(f"{model}_top_ids", ids)
        self._add(f"{model}_top_logprobs", values)

    def _add(self, name: str, values: Tensor) -> None:
        """Keep a round's values (b, q, ...) of a column, padded to the largest K with -1 or NaN."""
        form = COLUMNS["rows"][name]
        width = self._k + 1 if form.shape[1] == "K+1" else self._k
        filling = torch.nan if form.dtype == "float32" else -1
        padding = (0, 0) * (values.ndim - 2) + (0, width - values.shape[1])
        self._rows[name].append(pad(values, padding, value=filling))

    def rows(self, tally: Table) -> Table:
        """Return the table `rows`: the tally's columns, and the drafts, candidates and tokens."""
        forms = COLUMNS["rows"]
        if not len(tally["round"]):  # interrupted before the first round was over
            sizes = {"N": 0, "K": self._k, "K+1": self._k + 1, "k": 0, "j": 0}
            return {
                name: np.zeros([sizes[letter] for letter in form.shape], form.dtype)
                for name, form in forms.items()
            }
        table = dict(tally)
        for name, values in self._rows.items():
            table[name] = torch.cat(values).cpu().numpy().astype(forms[name].dtype)
        return table

    def moves(self) -> Table:
        """Return the table `moves`."""
        names = [*_Place._fields, *Move._fields]
        columns = np.array(self._moves, dtype=np.int32).reshape(-1, len(names)).T
        forms = COLUMNS["moves"]
        return {
            name: column.astype(forms[name].dtype)
            for name, column in zip(names, columns, strict=True)
        }

    def feeds(self) -> tuple[Table, Table]:
        """Return the tables `feeds` and `holes`."""
        parts: dict[str, list[np.ndarray]] = defaultdict(list)
        first = [0]  # of each feed, its first line in the table
        for fed in self._feeds:
            valid = fed.valid.cpu().numpy()
            count = int(valid.sum())
            for name, values in fed.columns.items():
                parts[name].append(values.cpu().numpy()[valid])
            for name, number in fed.place._asdict().items():
                parts[name].append(np.full(count, number))
            first.append(first[-1] + count)
        table = {}
        for name, form in COLUMNS["feeds"].items():
            if name in DERIVED["feeds"] and not self._branches:
                continue  # it follows from the other columns
            empty = np.zeros(0, form.dtype)
            table[name] = np.concatenate([empty, *parts[name]]).astype(form.dtype)
        return table, self._hole_table(first)

    def _hole_table(self, first: list[int]) -> Table:
        """Return the gaps between the ranges of visible slots, for each line of `feeds`."""
        found: list[tuple[int, int, int]] = []
        for number, visible in self._holes:
            for i, mask in enumerate(visible.cpu().numpy()):  # (w,)
                closed = np.concatenate([[False], mask, [False]]).astype(np.int8)
                edges = np.flatnonzero(np.diff(closed))  # start, stop, start, stop, ...
                gaps = zip(edges[1:-1:2], edges[2::2], strict=True)
                found += [(first[number] + i, int(start), int(stop)) for start, stop in gaps]
        feed, start, stop = np.array(found, dtype=np.int32).reshape(-1, 3).T
        return {"feed": feed, "start": start, "stop": stop}


def _nodes(feed: Feed, lengths: Tensor, phase: int) -> Tensor:
    """Return 1 + the number of the draft that each token is, 0 for a committed one: (b, q)."""
    if feed.nodes is not None:
        return feed.nodes
    if phase not in _DRAFTING:
        return torch.zeros_like(feed.indices)
    pending = lengths[feed.rows] - 1
    return (feed.indices - pending[:, None]).clamp(min=0)
