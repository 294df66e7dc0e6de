"""The table `rows` of a log's record, apart from where rows lie in the cache.

Contract: takes the ends of rounds and returns columns (N, ...), sorted by round and row. Not known
here: forwards.

N entries, K draft tokens, k and j candidates of the target and the draft.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.record.log.events import RoundEnd
from specviz.record.log.requests import NO_BUDGET, Requests
from specviz.record.schema import MODELS, Array, Table

_NAN = float("nan")


def joined(rounds: list[RoundEnd], name: str, shape: tuple[int, ...], fill: Any) -> Array:
    """Return what rounds gave under a name, (N, *shape), sorted by round and row."""
    parts = []
    for event in rounds:
        values = np.full((event.row.size, *shape), fill)
        given = event.values.get(name)
        if given is not None and given.ndim > 1:
            values[:, : given.shape[1]] = given
        elif given is not None:
            values = given
        parts.append(values[np.argsort(event.row)])
    return np.concatenate(parts)


def row_columns(header: Mapping[str, Any], requests: Requests, rounds: list[RoundEnd]) -> Table:
    """Return all columns but those of the layout."""
    K = header["num_draft_tokens"]
    orders = [np.argsort(event.row) for event in rounds]
    pairs = list(zip(rounds, orders, strict=True))
    drafts = joined(rounds, "drafts", (K,), -1)
    emitted = joined(rounds, "emitted", (K + 1,), -1)
    drafted = (drafts >= 0).sum(axis=1)
    verified = joined(rounds, "verified", (), -1)
    columns = {
        "round": np.repeat(np.arange(len(rounds)), [event.row.size for event in rounds]),
        "row": np.concatenate([event.row[order] for event, order in pairs]),
        "request": np.concatenate([event.request[order] for event, order in pairs]),
        "drafts": drafts,
        "emitted": emitted,
        "drafted": drafted,
        "verified": np.where(verified >= 0, verified, drafted),
        "accepted": joined(rounds, "accepted", (), 0),
        "gained": (emitted >= 0).sum(axis=1),
        "discarded": joined(rounds, "discarded", (), 0),
        "scores": np.full(drafts.shape, np.nan),
    }
    columns["length"] = _lengths(columns, requests)
    columns["finished"] = _finished(columns, header, requests, rounds)
    if any("parents" in event.values for event in rounds):
        columns |= _trees(columns, rounds, K)
    for model, width in zip(MODELS, (K + 1, K), strict=True):
        columns |= _candidates(rounds, model, width)
        own = joined(rounds, f"{model}_logprobs", (K,), _NAN)
        among = _among_candidates(columns, model)
        columns[f"{model}_logprob"] = np.where(np.isnan(own), among, own)
    return columns


def _lengths(columns: Table, requests: Requests) -> Array:
    """Return n of each entry before its round."""
    reached = list(requests.prompt_lengths)
    found = []
    for request, gained in zip(
        columns["request"].tolist(), columns["gained"].tolist(), strict=True
    ):
        found.append(reached[request])
        reached[request] += gained
    return np.array(found, np.int64)


def _finished(
    columns: Table, header: Mapping[str, Any], requests: Requests, rounds: list[RoundEnd]
) -> Array:
    """Return whether each entry's request ends, as it was given or as EOS and budget say."""
    given = joined(rounds, "finished", (), -1).astype(np.int64)
    is_eos = np.isin(columns["emitted"], header["eos_token_ids"]).any(axis=1)
    prompts = np.array(requests.prompt_lengths)[columns["request"]]
    budgets = np.array([NO_BUDGET if b is None else b for b in requests.budgets])
    reached = columns["length"] + columns["gained"] - prompts
    is_full = reached >= budgets[columns["request"]]
    return np.where(given >= 0, given, is_eos | is_full)


def _trees(columns: Table, rounds: list[RoundEnd], K: int) -> Table:
    """Return parents and path; a round that gave none has chains."""
    number = np.arange(K)
    chain = {
        "parents": np.where(number < columns["drafted"][:, None], number - 1, -1),
        "path": np.where(number < columns["accepted"][:, None], number, -1),
    }
    is_tree = np.concatenate(
        [np.full(event.row.size, "parents" in event.values) for event in rounds]
    )
    return {
        name: np.where(is_tree[:, None], joined(rounds, name, (K,), -1), values)
        for name, values in chain.items()
    }


def _candidates(rounds: list[RoundEnd], model: str, width: int) -> Table:
    """Return ids (N, width, k) and log-probabilities; -1 and NaN where none were given."""
    all_ids, all_logprobs = [], []
    for event in rounds:
        ids = event.values.get(f"{model}_top_ids")
        logprobs = event.values.get(f"{model}_top_logprobs")
        if ids is None and model == "target" and "choices" in event.values:
            ids = event.values["choices"][:, :, None]
        if ids is None:
            ids = np.full((event.row.size, width, 0), -1)
        if logprobs is None:
            logprobs = np.full(ids.shape, np.nan)
        order = np.argsort(event.row)
        behind = ((0, 0), (0, width - ids.shape[1]), (0, 0))
        all_ids.append(np.pad(ids, behind, constant_values=-1)[order])
        all_logprobs.append(np.pad(logprobs, behind, constant_values=_NAN)[order])
    # Of rounds with different numbers of candidates, those that all of them have.
    counts = [ids.shape[2] for ids in all_ids if ids.shape[2]]
    count = min(counts, default=0)
    return {
        f"{model}_top_ids": np.concatenate([_wide(ids, count, -1) for ids in all_ids]),
        f"{model}_top_logprobs": np.concatenate([_wide(p, count, _NAN) for p in all_logprobs]),
    }


def _wide(values: Array, count: int, fill: float) -> Array:
    """Return the first `count` candidates, `fill` in a round that has none."""
    if values.shape[2] == 0:
        return np.full((*values.shape[:2], count), fill)
    return values[:, :, :count]


def _among_candidates(columns: Table, model: str) -> Array:
    """Return the log-probability of each draft (N, K) that is among its candidates, else NaN."""
    drafts = columns["drafts"]
    every = np.arange(len(drafts))[:, None]
    before = np.broadcast_to(np.arange(drafts.shape[1]), drafts.shape)
    if model == "target" and "parents" in columns:
        before = columns["parents"] + 1  # column 0 follows the pending token
    ids = columns[f"{model}_top_ids"][every, before]
    logprobs = columns[f"{model}_top_logprobs"][every, before]
    is_read = np.arange(drafts.shape[1]) < columns["verified"][:, None]
    is_known = (drafts >= 0) & (is_read if model == "target" else True)
    is_draft = (ids == drafts[:, :, None]) & is_known[:, :, None]
    found = np.where(is_draft, logprobs, -np.inf).max(axis=2, initial=-np.inf)
    return np.where(is_draft.any(axis=2), found, np.nan)
