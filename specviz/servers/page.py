"""What a server's Prometheus page says about speculative decoding.

vLLM and llama.cpp count drafts, drafted and accepted tokens, and accepted tokens by position, since
the server started. SGLang gives the mean length and the rate of the last interval of each rank, and
no positions. A page is read as it is, or as the difference to an earlier one.

Not known here: models, devices and times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from specviz.costs.breakeven import break_even_rate
from specviz.record.schema import Array
from specviz.servers.protocol import MAX_TIMEOUT_S
from specviz.servers.scrape import Samples, download, page_address, samples_of, saved_page
from specviz.util.validate import require_positive, require_str, short, shown_path

COUNTING = ("vllm", "llamacpp")  # engines that count, by the prefix of their counters
_DRAFTS = "spec_decode_num_drafts_total"
_DRAFTED = "spec_decode_num_draft_tokens_total"
_ACCEPTED = "spec_decode_num_accepted_tokens_total"
_BY_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
_LENGTH = "sglang:spec_accept_length"
_SPECULATIVE = re.compile(r"(?<![a-z])spec(ulative)?_(?!.*_created$)")
_POSITION = re.compile("0|[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Counters:
    """What a page says of one model.

    Attributes:
        engine: "vllm", "llamacpp" or "sglang".
        model: its name; "" where the page has none.
        rounds: verification steps; None where they are not counted.
        drafted_tokens, accepted_tokens: None where they are not counted.
        accepted_by_position: (K,) rounds that accepted the draft at each position; None where they
            are not counted.
        mean_acceptance_length: 1 + accepted drafts a round, the bonus included.
        draft_acceptance_rate: accepted / drafted.
        num_draft_tokens: K, the most drafts of a round; None where the page does not say.
    """

    engine: str
    model: str
    rounds: float | None
    drafted_tokens: float | None
    accepted_tokens: float | None
    accepted_by_position: Array | None
    mean_acceptance_length: float
    draft_acceptance_rate: float
    num_draft_tokens: int | None

    @property
    def rates(self) -> Array | None:
        """(K,) unconditional acceptance, accepted at a position / rounds; None if unknown."""
        if self.accepted_by_position is None or not self.rounds:
            return None
        found: Array = self.accepted_by_position / self.rounds
        return found

    @property
    def draft_share(self) -> float | None:
        """Drafted tokens by those of rounds that all draft K; None if unknown."""
        if self.drafted_tokens is None or not self.rounds or not self.num_draft_tokens:
            return None
        return self.drafted_tokens / (self.rounds * self.num_draft_tokens)

    @property
    def likely_rates(self) -> Array | None:
        """(K,) `rates`; where there are none, those of a constant rate with the same mean length.

        None if K is unknown.
        """
        if self.rates is not None or not self.num_draft_tokens:
            return self.rates
        rate = break_even_rate(self.mean_acceptance_length, self.num_draft_tokens)
        found: Array = rate ** np.arange(1, self.num_draft_tokens + 1)
        return found if np.isfinite(found).all() else None

    def summary(self) -> pd.DataFrame:
        """Return one row.

        Columns: num_draft_tokens, rounds, drafted_tokens, accepted_tokens, mean_acceptance_length
        and draft_acceptance_rate; NaN for what the page does not say.
        """
        names = ("num_draft_tokens", "rounds", "drafted_tokens", "accepted_tokens")
        values = {name: getattr(self, name) for name in names}
        entry = {name: float("nan") if value is None else value for name, value in values.items()}
        entry["mean_acceptance_length"] = self.mean_acceptance_length
        entry["draft_acceptance_rate"] = self.draft_acceptance_rate
        return pd.DataFrame([entry])

    def unanswered(self) -> list[str]:
        """Return what the page cannot say, or says only under an assumption, as sentences."""
        found = []
        if self.engine == "sglang":
            found.append("SGLang's page gives the last interval, and no acceptance by position.")
            if self.num_draft_tokens:
                found.append("The best K assumes that every draft is accepted equally often.")
            else:
                found.append("It does not say K, so the cost model cannot choose one.")
        elif self.accepted_by_position is None:
            found.append("The page has no positions, so the cost model cannot choose K.")
        share = self.draft_share
        if share is not None and share < 1:
            found.append(
                f"Rounds drafted {share:.1%} of K a round; later positions count as rejected where "
                "they were not drafted."
            )
        found.append("Acceptance beyond the server's K: so many drafts were never made.")
        return found

    def positions(self) -> pd.DataFrame:
        """Return one entry a position; none if the page has no positions.

        Columns: position (from 1), acceptance (unconditional) and conditional_acceptance (of the
        rounds that accepted the draft before it).
        """
        rates = self.rates
        if rates is None:
            return pd.DataFrame(columns=["position", "acceptance", "conditional_acceptance"])
        reached = np.concatenate([[1.0], rates[:-1]])
        with np.errstate(invalid="ignore", divide="ignore"):
            conditional = rates / reached
        return pd.DataFrame(
            {
                "position": np.arange(1, len(rates) + 1),
                "acceptance": rates,
                "conditional_acceptance": conditional,
            }
        )


def read_page(
    source: str, *, since: str | Path | None = None, timeout_s: float = 10.0
) -> list[Counters]:
    """Read the counters of each model of a server.

    Args:
        source: the address of a server or of its page, or a file in which such a page was saved. Of
            an address that ends with "/" or "/v1", the page is /metrics.
        since: a page saved earlier: only what was counted after it is returned.
        timeout_s: seconds that the server may take.

    Raises:
        ValueError: an argument cannot be used, or a page has no such counters.
        FileNotFoundError: there is no file of that name.
        ServerError: the server does not answer, or with something else.
        ImportError: `prometheus-client` is not installed.
    """
    require_str("source", source, "pass the address of a server, or a saved page")
    require_positive("timeout_s", timeout_s, maximum=MAX_TIMEOUT_S)
    before = None
    if since is not None:
        before = samples_of(shown_path(since), saved_page("since", since))
    if source.startswith(("http://", "https://")):
        where = page_address(source)
        text = download(where, timeout_s)
    else:
        where = shown_path(source)
        text = saved_page("source", source)
    samples = samples_of(where, text)
    found = counters_of(samples, before)
    if not found:
        raise ValueError(f"{where}: {_why_none(samples, before)}")
    return found


def _why_none(samples: Samples, before: Samples | None) -> str:
    """Say why a page has nothing to read, and what to do."""
    none = "no round of speculative decoding is counted on this page"
    names = sorted({name for name, _, _ in samples if _SPECULATIVE.search(name)})
    read = [f"{engine}:{_DRAFTS}" for engine in COUNTING]
    if before is not None and _LENGTH in names:
        return f"{_LENGTH} is of the last interval alone; leave since out"
    if set(names) & {*read, _LENGTH}:
        return f"{none}, so there is nothing to read; let the server decode with speculation first"
    if names:
        listed = ", ".join(names)
        return (
            f"these names are not read: {listed}; pass a page of SGLang, or one with the counter "
            f"{read[0]} or {read[1]}"
        )
    return f"{none}; start the server with speculative decoding, and SGLang with --enable-metrics"


def counters_of(samples: Samples, before: Samples | None = None) -> list[Counters]:
    """Return the counters of each model that has had a round. Engines of one model are added up."""
    earlier = before or {}
    found = []
    for model in sorted({model for _, model, _ in samples}):
        for engine in COUNTING:
            counted = _counted(engine, model, samples, earlier)
            found += [] if counted is None else [counted]
        if before is None:  # SGLang has no counters whose difference says anything
            measured = _measured(model, samples)
            found += [] if measured is None else [measured]
    return found


def _counted(engine: str, model: str, samples: Samples, before: Samples) -> Counters | None:
    def value(name: str, position: str = "") -> float:
        key = (f"{engine}:{name}", model, position)
        return sum(samples.get(key, {}).values()) - sum(before.get(key, {}).values())

    rounds = value(_DRAFTS)
    by_position = f"{engine}:{_BY_POSITION}"
    labels = [place for name, m, place in samples if (name, m) == (by_position, model) and place]
    places = _positions(model, labels)
    counts = np.array([value(_BY_POSITION, str(place)) for place in places])
    everything = [rounds, value(_DRAFTED), value(_ACCEPTED), *counts]
    if min(everything) < 0:
        raise ValueError(
            f"since counts more of {short(model)} than the later page, by {-min(everything):g}; "
            "the server was started again in between, so leave it out"
        )
    if rounds == 0:
        return None
    if places != list(range(len(places))) or (np.diff([rounds, *counts]) > 0).any():
        raise ValueError(
            f"source counts positions {places} of {short(model)} that rise or are missing, got "
            f"{short(counts.tolist())} of {rounds:g} rounds; read the page again"
        )
    drafted = value(_DRAFTED)
    return Counters(
        engine=engine,
        model=model,
        rounds=rounds,
        drafted_tokens=drafted,
        accepted_tokens=value(_ACCEPTED),
        accepted_by_position=counts if places else None,
        mean_acceptance_length=1 + value(_ACCEPTED) / rounds,
        draft_acceptance_rate=value(_ACCEPTED) / drafted if drafted else float("nan"),
        num_draft_tokens=len(places) or None,
    )


def _positions(model: str, labels: Sequence[str]) -> list[int]:
    """Return the labels as numbers, in order. Raise ValueError unless all are decimal."""
    for label in labels:
        if not _POSITION.fullmatch(label):
            raise ValueError(
                f"source must count positions 0, 1, 2, ..., got position={short(label)} of "
                f"{short(model)}; read the page again"
            )
    return sorted(map(int, labels))


def _measured(model: str, samples: Samples) -> Counters | None:
    """Return what SGLang's gauges say, which is about the last interval.

    Each rank has gauges of its own. Those of a rank that has had no round are 0, and left out.
    """
    lengths = samples.get((_LENGTH, model, ""), {})
    active = {rank: length for rank, length in lengths.items() if length > 0}
    if not active:
        return None
    rates = samples.get(("sglang:spec_accept_rate", model, ""), {})
    of_active = [rates[rank] for rank in active if rank in rates]
    steps = samples.get(("sglang:spec_num_steps", model, ""), {})
    return Counters(
        engine="sglang",
        model=model,
        rounds=sum(samples.get(("sglang:spec_verify_calls_total", model, ""), {}).values()) or None,
        drafted_tokens=None,
        accepted_tokens=None,
        accepted_by_position=None,
        mean_acceptance_length=float(np.mean(list(active.values()))),
        draft_acceptance_rate=float(np.mean(of_active)) if of_active else float("nan"),
        num_draft_tokens=int(max(steps.values(), default=0)) or None,
    )
