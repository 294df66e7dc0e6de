"""One row of the batch in one round: the record's columns, and what they imply.

Contract: reads a Trace and counts. Not known here: words, other rows of the round.
"""

from dataclasses import dataclass, fields

import numpy as np

from specviz.checks.fates import target_choices
from specviz.record.schema import missing_in
from specviz.record.trace import Trace
from specviz.record.trees import depths, leaves
from specviz.views.stepper.columns import pending_positions


@dataclass(frozen=True, eq=False)  # a row equals itself alone, so that looking one up is cheap
class BatchRow:
    """One row of the batch in a round: columns of the record's table `rows`, and what they imply.

    Attributes:
        number: of the row in the batch.
        q: probabilities of its drafts; NaN where the drafter gave none.
        next_position: the position id that its last token gets after this round; its index if
            drift is not to be reported.
        end: the slot of its last token after the acceptance, before rows move.
        branches: on how many branches its drafts lie; 1 for a chain, 0 without drafts.
        depth: how far behind the pending token its deepest draft stands.
        path: its accepted drafts, -1 behind them.
        with_eos: whether its last token is EOS.
        with_stop: whether its last token completes a stop string.
        is_targets: whether the token after its accepted drafts may be called the target's own.
    """

    request: int
    length: int
    drafted: int
    verified: int
    accepted: int
    gained: int
    finished: bool
    discarded: int
    start: int
    start_after: int
    pending: int
    pending_after: int
    number: int
    q: list[float]
    next_position: int
    end: int
    branches: int
    depth: int
    path: list[int]
    with_eos: bool
    with_stop: bool
    is_targets: bool

    @property
    def known_q(self) -> list[tuple[float, int]]:
        """Each known probability, with its draft's number from 1."""
        drafts = enumerate(self.q[: self.drafted], 1)
        return [(q, draft) for draft, q in drafts if q == q]

    @property
    def resume_slot(self) -> int | None:
        """The slot of its last token where that lies past rejected drafts although nothing moved.

        None where the last token goes right behind the row's other tokens.
        """
        stays = self.start_after == self.start and self.pending_after != self.end
        return self.pending_after if stays else None

    @property
    def kept_slots(self) -> list[int]:
        """The slots in which the target read the drafts that the row keeps."""
        kept = min(self.accepted, self.gained)
        return [self.pending + 1 + draft for draft in self.path[:kept]]

    @property
    def kv_end(self) -> int:
        """The last slot whose K/V counts after the acceptance.

        The last token has no K/V yet if it is the target's own. A draft that ends the row has some.
        """
        return self.end if self.gained <= self.accepted else self.end - 1

    @property
    def leaves_holes(self) -> bool:
        """Whether it goes on further behind than it has grown."""
        goes_on = self.pending_after - self.start_after
        return goes_on - (self.pending - self.start) > self.gained

    @property
    def holes(self) -> int:
        """Slots between its first and last token without a token of it, after synchronising."""
        return self.pending_after - self.start_after - self.index

    @property
    def index(self) -> int:
        """The index of its last token after this round."""
        return self.length + self.gained - 1


def batch_rows(trace: Trace, judge: bool) -> list[BatchRow]:
    """Return all entries of the table `rows`."""
    rows = trace.rows
    last = np.maximum(rows["gained"] - 1, 0)[:, None]  # (N, 1) index into what was emitted
    emitted = np.take_along_axis(rows["emitted"], last, axis=1)[:, 0]
    choice = np.take_along_axis(target_choices(trace), last, axis=1)[:, 0]
    has_bonus = rows["gained"] > rows["accepted"]
    differs = (emitted != choice) & (choice >= 0) & has_bonus
    index = rows["length"] + rows["gained"] - 1  # of the last token after the round
    table = dict(rows)
    table["number"] = np.arange(last.size) - trace.index.row_bounds[rows["round"]]
    table["q"] = np.exp(rows["draft_logprob"])
    table["next_position"] = pending_positions(trace)[1] if judge else index
    table["end"] = trace.index.ends
    table["branches"] = leaves(rows["parents"], rows["drafted"])
    is_draft = np.arange(rows["parents"].shape[1]) < rows["drafted"][:, None]
    table["depth"] = (depths(rows["parents"]) * is_draft).max(axis=1, initial=0)
    table["with_eos"] = np.isin(emitted, trace.meta["eos_token_ids"]) & (rows["gained"] > 0)
    stopped = [i for i, each in enumerate(trace.meta.get("status", ())) if each == "stop"]
    table["with_stop"] = (rows["finished"] == 1) & np.isin(rows["request"], stopped)
    table["is_targets"] = judge & ~differs & ("candidates.target" not in missing_in(trace.meta))
    columns = [table[field.name].tolist() for field in fields(BatchRow)]
    return [BatchRow(*values) for values in zip(*columns, strict=True)]
