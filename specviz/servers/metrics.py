"""What a server's Prometheus page says about speculative decoding.

vLLM and llama.cpp count drafts, drafted and accepted tokens, and accepted tokens by position, since
the server started. SGLang gives the mean length and the rate of the last interval of each rank, and
no positions. A page is read as it is, or as the difference to an earlier one.
"""

from __future__ import annotations

import http.client
import math
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import pandas as pd

from specviz.costs.breakeven import break_even_rate
from specviz.record.schema import Array
from specviz.servers.client import MAX_TIMEOUT_S, check_url
from specviz.util.errors import ServerError
from specviz.util.files import is_file
from specviz.util.validate import (
    quoted_path,
    require_path,
    require_positive,
    require_str,
    short,
    shown_path,
)

MAX_BYTES = 64 * 2**20
COUNTING = ("vllm", "llamacpp")  # engines that count, by the prefix of their counters
# Their counters, by what is counted.
_COUNTS = {
    "rounds": "spec_decode_num_drafts_total",
    "drafted_tokens": "spec_decode_num_draft_tokens_total",
    "accepted_tokens": "spec_decode_num_accepted_tokens_total",
}
_BY_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
# SGLang's gauges and counters, of each rank.
_GAUGES = {
    "length": "sglang:spec_accept_length",
    "rate": "sglang:spec_accept_rate",
    "num_draft_tokens": "sglang:spec_num_steps",
    "rounds": "sglang:spec_verify_calls_total",
}
# What each engine's log calls acceptance. SGLang's rate had the bonus in it until PR 23530 (2026).
_NO_BONUS = "accepted / drafted tokens, no bonus"
_AT_POSITION = "accepted at a position / rounds, unconditional"
_DEFINITIONS = {
    "vllm": {
        "Mean acceptance length": "1 + accepted / drafts, bonus included",
        "Avg Draft acceptance rate": _NO_BONUS,
        "Per-position acceptance rate": _AT_POSITION,
    },
    "llamacpp": {
        "mean acceptance length": "1 + accepted / verifications, bonus included",
        "draft acceptance (draft_n_accepted / draft_n)": _NO_BONUS,
        "acceptance rate per position": _AT_POSITION,
    },
    "sglang": {
        "accept len (spec_accept_length)": "tokens of a verification, bonus included",
        "accept rate (spec_accept_rate)": f"{_NO_BONUS}; before PR 23530 length / num_draft_tokens",
    },
}
_FORMATS = {"vllm": "{:.1%}", "llamacpp": "{:.5f}", "sglang": "{:.2f}"}  # of the rate
_SPECULATIVE = re.compile(r"(?<![a-z])spec(ulative)?_(?!.*_created$)")


@dataclass(frozen=True)
class Counters:
    """What a page says of one model.

    Attributes:
        engine: "vllm", "llamacpp" or "sglang".
        model: its name; "" where the page has none.
        mean_acceptance_length: 1 + accepted drafts a round, the bonus included.
        draft_acceptance_rate: accepted / drafted; of SGLang, its own rate (see `definitions`).
        num_draft_tokens: K, the most drafts of a round; None where the page does not say.
        rounds: verification steps; None where they are not counted.
        drafted_tokens, accepted_tokens: None where they are not counted.
        accepted_by_position: (K,) rounds that accepted the draft at each position; None where they
            are not counted.
    """

    engine: str
    model: str
    mean_acceptance_length: float
    draft_acceptance_rate: float
    num_draft_tokens: int | None
    rounds: float | None = None
    drafted_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_by_position: Array | None = None

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
        names = ["num_draft_tokens", "rounds", "drafted_tokens", "accepted_tokens"]
        names += ["mean_acceptance_length", "draft_acceptance_rate"]
        values = {name: getattr(self, name) for name in names}
        return pd.DataFrame(
            [{name: math.nan if value is None else value for name, value in values.items()}]
        )

    def positions(self) -> pd.DataFrame:
        """Return one entry a position; none if the page has no positions.

        Columns: position (from 1), acceptance (unconditional) and conditional_acceptance (of the
        rounds that accepted the draft before it).
        """
        rates = np.zeros(0) if self.rates is None else self.rates
        reached = np.append(1.0, rates)[: len(rates)]
        with np.errstate(invalid="ignore", divide="ignore"):
            conditional = rates / reached
        numbers = np.arange(1, len(rates) + 1)
        columns = {"position": numbers, "acceptance": rates, "conditional_acceptance": conditional}
        return pd.DataFrame(columns)

    def definitions(self) -> pd.DataFrame:
        """Return how the engine itself defines and shows acceptance, one entry a name.

        Columns: name, in its log (or in answers and pages); definition; value, as the log would
        show it of what the page has; mean_acceptance_length, which follows from the value: NaN for
        SGLang's rate, whose definition depends on the version and the shape of its trees.
        """
        length, rate = self.mean_acceptance_length, self.draft_acceptance_rate
        drafts = self.drafted_tokens / self.rounds if self.drafted_tokens and self.rounds else None
        shown = [f"{length:.2f}", _FORMATS[self.engine].format(rate)]
        lengths = [length, math.nan if drafts is None else 1 + rate * drafts]
        if self.rates is not None:
            shown.append(", ".join(f"{each:.3f}" for each in self.rates))
            lengths.append(1 + float(self.rates.sum()))
        names = list(_DEFINITIONS[self.engine].items())[: len(shown)]
        table = pd.DataFrame(names, columns=["name", "definition"])
        return table.assign(value=shown, mean_acceptance_length=lengths)

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
    before = None if since is None else _samples(shown_path(since), _saved_page("since", since))
    if source.startswith(("http://", "https://")):
        parts = urlsplit(check_url("source", source))
        path = parts.path.rstrip("/")
        path = "/metrics" if path in ("", "/v1") else path
        where = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        text = _download(where, timeout_s)
    else:
        where = shown_path(source)
        text = _saved_page("source", source)
    page = _samples(where, text)
    found: list[Counters | None] = []
    for model in sorted(page["model"].unique()):
        found += [_counted(engine, model, page, before) for engine in COUNTING]
        if before is None:  # SGLang has no counters whose difference says anything
            found.append(_measured(model, page))
    counters = [each for each in found if each is not None]
    if not counters:
        raise ValueError(f"{where}: {_why_none(set(page['name']), before is not None)}")
    return counters


def _why_none(given: set[str], is_difference: bool) -> str:
    """Say why a page with these names has nothing to read, and what to do."""
    none = "no round of speculative decoding is counted on this page"
    names = sorted(filter(_SPECULATIVE.search, given))
    read = [f"{engine}:{_COUNTS['rounds']}" for engine in COUNTING]
    if is_difference and _GAUGES["length"] in names:
        return f"{_GAUGES['length']} is of the last interval alone; leave since out"
    if given & {*read, _GAUGES["length"]}:
        return f"{none}, so there is nothing to read; let the server decode with speculation first"
    if names:
        return (
            f"these names are not read: {', '.join(names)}; pass a page of SGLang, or one with the "
            f"counter {read[0]} or {read[1]}"
        )
    return f"{none}; start the server with speculative decoding, and SGLang with --enable-metrics"


def _counted(
    engine: str, model: str, page: pd.DataFrame, before: pd.DataFrame | None
) -> Counters | None:
    """Return what an engine has counted for a model, None if no round. Its engines are added up."""
    totals = _totals(page, model)
    if before is not None:
        totals = totals.sub(_totals(before, model), fill_value=0.0)
    rounds, drafted, accepted = (
        float(totals.get((f"{engine}:{name}", ""), 0.0)) for name in _COUNTS.values()
    )
    by_position = f"{engine}:{_BY_POSITION}"
    found = {at: value for (name, at), value in totals.items() if name == by_position and at}
    least = min(rounds, drafted, accepted, *found.values())
    if least < 0:
        raise ValueError(
            f"since counts more of {short(model)} than the later page, by {-least:g}; "
            "the server was started again in between, so leave it out"
        )
    if rounds == 0:
        return None
    counts = np.array([found.get(str(place), math.nan) for place in range(len(found))])
    if np.isnan(counts).any() or (np.diff([rounds, *counts]) > 0).any():
        raise ValueError(
            f"source must count positions 0, 1, 2, ... of {short(model)}, none more often than the "
            f"one before, got {short(found)} of {rounds:g} rounds; read the page again"
        )
    return Counters(
        engine=engine,
        model=model,
        mean_acceptance_length=1 + accepted / rounds,
        draft_acceptance_rate=accepted / drafted if drafted else math.nan,
        num_draft_tokens=len(counts) or None,
        rounds=rounds,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        accepted_by_position=counts if len(counts) else None,
    )


def _totals(page: pd.DataFrame, model: str) -> pd.Series:
    """Return the values of a model by name and position, added up over all other labels."""
    return page[page["model"] == model].groupby(["name", "position"])["value"].sum()


def _measured(model: str, page: pd.DataFrame) -> Counters | None:
    """Return what SGLang's gauges say, which is about the last interval.

    Each rank has gauges of its own. Those of a rank that has had no round are 0, and left out.
    """
    own = page[(page["model"] == model) & (page["position"] == "")]
    ranks = own.pivot_table("value", "labels", "name", aggfunc="last")
    ranks = ranks.reindex(columns=list(_GAUGES.values())).set_axis(list(_GAUGES), axis="columns")
    active = ranks[ranks["length"] > 0]
    if active.empty:
        return None
    return Counters(
        engine="sglang",
        model=model,
        mean_acceptance_length=float(active["length"].mean()),
        draft_acceptance_rate=float(active["rate"].mean()),
        num_draft_tokens=int(ranks["num_draft_tokens"].fillna(0).max()) or None,
        rounds=float(ranks["rounds"].sum()) or None,
    )


def _download(url: str, timeout_s: float) -> str:
    """Return the page at an address. Raises ServerError."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            content: bytes = answer.read(MAX_BYTES)
    except urllib.error.HTTPError as error:
        words = f"answers with status {error.code}; start the server with its metrics, SGLang "
        words += "with --enable-metrics and llama.cpp with --metrics"
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        words = (
            f"cannot be reached ({short(str(reason))}); start the server, or correct the address"
        )
        if isinstance(reason, TimeoutError):
            words = f"no answer within {timeout_s:g} s; raise the timeout"
    else:
        return content.decode("utf-8", "replace")
    raise ServerError(f"{url}: {words}")


def _saved_page(name: str, path: str | Path) -> str:
    """Return the text of a file. Raises ValueError, FileNotFoundError."""
    place = require_path(name, path)
    if not is_file(place):
        raise FileNotFoundError(
            f"{name}={quoted_path(place)} is not a file; pass a saved page, or an address that "
            "begins with http://"
        )
    try:
        return place.read_bytes()[:MAX_BYTES].decode("utf-8", "replace")
    except OSError as error:
        raise ValueError(
            f"{name}: {shown_path(place)} cannot be read ({error.strerror}); pass a saved page"
        ) from None


def _samples(where: str, text: str) -> pd.DataFrame:
    """Return the finite samples of a page.

    Columns: name, model and position, "" for none; labels, all of them; value.

    Raises:
        ValueError: the text is not a Prometheus page.
        ImportError: `prometheus-client` is not installed.
    """
    if find_spec("prometheus_client") is None:
        raise ImportError(
            "a page needs prometheus-client, which is not installed; "
            'run: pip install "specviz[servers]"'
        )
    parser = import_module("prometheus_client.parser")
    found = []
    try:
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                labels = sample.labels
                model = labels.get("model_name", labels.get("model", ""))
                own = str(sorted(labels.items()))
                position = labels.get("position", "")
                found.append((sample.name, model, position, own, float(sample.value)))
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{where}: is not a Prometheus page ({short(str(error))}), it begins with "
            f"{short(text[:40])}; pass the address of /metrics"
        ) from None
    frame = pd.DataFrame(found, columns=["name", "model", "position", "labels", "value"])
    frame = frame[np.isfinite(frame["value"].astype(float))]
    return frame.drop_duplicates(["name", "labels"], keep="last")
