"""Acceptance tables: what a drafter would propose at every position of finished texts.

In greedy decoding a text, its drafts and their acceptance depend on the tokens before them alone,
never on the batch. So one table replays any scheduler exactly, without a model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from specviz.costs.rounds import Costs, RoundCosts
from specviz.record.schema import Array
from specviz.simulation.policy import Policy
from specviz.simulation.serving import Simulation, simulate
from specviz.simulation.workload import Workload
from specviz.util.files import write
from specviz.util.validate import require_path, short, shown_path

_HEADER = "specviz_table"
FORMAT_VERSION = 1
# dtype and number of dimensions.
_COLUMNS: dict[str, tuple[type[np.generic], int]] = {
    "prompt_tokens": (np.int32, 1),
    "offsets": (np.int64, 1),
    "drafts": (np.int32, 2),
    "log_q": (np.float32, 2),
    "entropy": (np.float32, 2),
    "accepted": (np.int8, 1),
}
MAX_DEPTH = np.iinfo(np.int8).max
# A probability in float32 may come out larger than 1 by so much.
_ROUNDING = 1e-5
UNIT = Costs(verify=1.0)  # a round takes a second: what is counted are rounds


@dataclass(frozen=True)
class AcceptanceTable:
    """The next D drafts at each of N positions of R greedy texts.

    Positions are those of new tokens. Those of request r are `offsets[r]` to `offsets[r + 1]`, and
    the first of them stands before its first new token.

    Attributes:
        prompt_tokens: (R,) int32, length of each prompt.
        offsets: (R+1,) int64.
        drafts: (N, D) int32, what the drafter proposes there, each after the ones before it; -1
            where it is unknown.
        log_q: (N, D) float32, log-probability of each proposal under the draft, in nats; NaN where
            it is unknown, as in tables made from a server's log. Selectors by q then do not run.
        entropy: (N, D) float32, of the distribution that the proposal comes from, in nats, or NaN.
        accepted: (N,) int8, how many of them the target accepts in a row. At the end of a text no
            more than the tokens that are left.
        meta: JSON values: what the table was made from and with.

    Raises:
        ValueError: the columns do not fit together, as in a file that is damaged.
    """

    prompt_tokens: Array = field(repr=False)
    offsets: Array = field(repr=False)
    drafts: Array = field(repr=False)
    log_q: Array = field(repr=False)
    entropy: Array = field(repr=False)
    accepted: Array = field(repr=False)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if problem := next(self._problems(), None):
            raise ValueError(f"{problem}; make the table again")

    def _problems(self) -> Iterator[str]:
        """Yield how the columns do not fit together, the first one first."""
        for name, (dtype, dimensions) in _COLUMNS.items():
            values = getattr(self, name)
            if values.dtype != dtype or values.ndim != dimensions:
                yield f"{name} must be a {dtype.__name__} array of {dimensions} dimensions"
        tokens = self.new_tokens
        shape = (len(self.accepted), self.depth)
        wide_ones = (self.drafts, self.log_q, self.entropy)
        if not len(tokens) or len(tokens) != len(self.prompt_tokens):
            yield "offsets must have one entry more than prompt_tokens"
        if self.offsets[0] != 0 or (tokens < 1).any() or self.offsets[-1] != shape[0]:
            yield "offsets must rise from 0 to the number of positions"
        if not 1 <= self.depth <= MAX_DEPTH or any(each.shape != shape for each in wide_ones):
            yield f"drafts, log_q and entropy must be {shape[0]} x 1 to {MAX_DEPTH}"
        if (self.prompt_tokens < 1).any():
            yield "prompt_tokens must be at least 1"
        left = np.repeat(self.offsets[1:], tokens) - np.arange(shape[0])  # tokens, with this one
        if ((self.accepted < 0) | (self.accepted > np.minimum(left, self.depth))).any():
            yield "accepted must be from 0 to the drafts and to the tokens left"
        if (self.drafts < -1).any():
            yield "drafts must be token ids, or -1"
        if (self.log_q > _ROUNDING).any():
            yield "log_q must be logarithms of probabilities, which are at most 0, or NaN"
        if (self.entropy < -_ROUNDING).any() or np.isinf(self.entropy).any():
            yield "entropy must be finite and at least 0, or NaN"

    @property
    def depth(self) -> int:
        """D: drafts proposed at each position."""
        return int(self.drafts.shape[1])

    @property
    def new_tokens(self) -> Array:
        """(R,) int64, tokens of each text."""
        return np.diff(self.offsets)

    def workload(
        self, requests: int | None = None, *, replicas: int = 1, seed: int = 0
    ) -> Workload:
        """Return requests that write the table's texts, all at once.

        Args:
            requests: so many a replica, drawn from the texts at random; None: each text once, in
                order.
            replicas: G.
            seed: of what is drawn.
        """
        count = len(self.prompt_tokens)
        texts = np.tile(np.arange(count), (replicas, 1))
        if requests is not None:
            texts = np.random.default_rng(seed).integers(0, count, (replicas, requests))
        return self.writing(texts)

    def writing(self, texts: Array) -> Workload:
        """Return requests that write the texts with these numbers (G, N), all at once."""
        return Workload(
            prompt_tokens=self.prompt_tokens[texts].astype(np.int64),
            new_tokens=self.new_tokens[texts],
            arrival_s=np.zeros(texts.shape),
            accepted=self.accepted,
            first=self.offsets[texts],
            by_position=True,
            log_q=None if np.isnan(self.log_q).any() else self.log_q,
            entropy=None if np.isnan(self.entropy).any() else self.entropy,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the table to a safetensors file, whole or not at all. Raises WriteError."""
        file = require_path("path", path)
        columns = {name: np.ascontiguousarray(getattr(self, name)) for name in _COLUMNS}
        header = json.dumps({"format_version": FORMAT_VERSION, "meta": dict(self.meta)})
        return write(file, save(columns, {_HEADER: header}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AcceptanceTable:
        """Read a table.

        Raises:
            ValueError: the file cannot be read or holds no valid table; names file and remedy.
        """
        place = require_path("path", path)
        try:
            with safe_open(place, framework="numpy") as file:
                header = json.loads((file.metadata() or {})[_HEADER])
                columns = {name: file.get_tensor(name) for name in _COLUMNS}
            version = header["format_version"]
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise ValueError(
                f"{shown_path(place)}: holds no acceptance table ({short(str(error))}); "
                "make it again"
            ) from error
        if version != FORMAT_VERSION:
            raise ValueError(
                f"{shown_path(place)}: has format version {short(version)}, but this release reads "
                f"{FORMAT_VERSION}; install another release of specviz, or make the table again"
            )
        return cls(**columns, meta=header["meta"])


def replay(
    table: AcceptanceTable,
    policy: Policy,
    costs: RoundCosts = UNIT,
    *,
    requests: int | None = None,
    replicas: int = 1,
    seed: int = 0,
) -> Simulation:
    """Run a policy on a table: every round is that of the engine on the same texts.

    Args:
        policy: it may draft at most as many tokens a row as the table is deep.
        costs: what a round costs; by default every round takes a second.
        requests, replicas, seed: see `AcceptanceTable.workload`. A replica has one device.

    Raises:
        ValueError: the policy drafts more, or reads what the table does not hold.
    """
    if policy.drafted > table.depth:
        raise ValueError(
            f"policy must draft at most as many tokens as the table's depth {table.depth}, got "
            f"{policy.drafted}; make a deeper table"
        )
    return simulate(table.workload(requests, replicas=replicas, seed=seed), policy, costs)
