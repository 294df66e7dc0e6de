"""The tables of `specviz study laws`, from what was counted of each draft. Runs no model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from specviz.costs.laws import interval
from specviz.zoo.ladder.batch import batch_table
from specviz.zoo.ladder.fits import fit_table, resampled
from specviz.zoo.ladder.measure import count_all_rounds, survival
from specviz.zoo.ladder.rungs import LARGE_K, SMALL_K

_NAMES = ("size", "layers", "width", "parameters", "layer_parameters", "mark")

Found = Sequence[Mapping[str, Any]]  # what `Ladder.rung` returns, for each draft


def tables_of(
    found: Found, shipped: Mapping[str, Any], samples: int, seed: int
) -> dict[str, pd.DataFrame]:
    """Return the tables of the study; the shipped draft is in "lengths" and "batch" alone.

    They are "drafts" (see `draft_table`), "lengths" (`length_table`), "prompts" (`prompt_table`),
    "fits" (`fit_table`) and "batch" (`batch_table`).
    """
    prompts = prompt_table(found)
    lengths = length_table([*found, shipped])
    drafts = draft_table(found, prompts, samples, seed)
    return {
        "drafts": drafts,
        "lengths": lengths,
        "prompts": prompts,
        "fits": fit_table(drafts, prompts, samples, seed),
        "batch": batch_table(lengths),
    }


def draft_table(found: Found, prompts: pd.DataFrame, samples: int, seed: int) -> pd.DataFrame:
    """Return one entry for each draft.

    Columns: size, layers, width; parameters, and those of the layers alone (layer_parameters);
    mark (tokens at the constant rate); steps and tokens (the cooldown included); loss (KL from the
    target in nats, of the last steps); cpu_s (CPU seconds of its training from the first step on);
    length_k4 and length_k16 (new tokens a round with 4 and with 16 drafts), each with its interval
    over prompts (length_k4_low, length_k4_high).
    """
    return pd.DataFrame(_drafts(found, prompts, samples, seed))


def _drafts(
    found: Found, prompts: pd.DataFrame, samples: int, seed: int
) -> Iterator[dict[str, Any]]:
    for each in found:
        last = each["history"][-1]
        entry = {name: each[name] for name in _NAMES}
        entry |= {name: last[of] for name, of in (("steps", "step"), ("tokens", "tokens"))}
        entry["loss"] = last["loss"]
        entry["cpu_s"] = sum(part["cpu_seconds"] for part in each["history"])
        for k in (SMALL_K, LARGE_K):
            drawn = resampled(pd.DataFrame([entry]), prompts, k, samples, seed)[:, 0]
            low, high = interval(drawn[1:])
            name = f"length_k{k}"
            entry |= {name: float(drawn[0]), f"{name}_low": low, f"{name}_high": high}
        yield entry


def lengths_of(counted: Mapping[str, Any]) -> dict[str, float]:
    """Return the lengths length_k4 and length_k16 of a draft, by what was counted of it."""
    accepted = counted["accepted"]
    tokens = sum(map(len, accepted))
    rounds = {k: count_all_rounds(accepted, k).sum() for k in (SMALL_K, LARGE_K)}
    return {f"length_k{k}": round(float(tokens / rounds[k]), 4) for k in rounds}


def prompt_table(found: Found) -> pd.DataFrame:
    """Return one entry for each draft and prompt.

    Columns: size and mark, as in `draft_table`; prompt, its number; new_tokens; rounds_k4 and
    rounds_k16, in which they are written with 4 and with 16 drafts a round.
    """
    parts = []
    for each in found:
        accepted = each["accepted"]
        of_draft = {"size": each["size"], "mark": each["mark"], "prompt": range(len(accepted))}
        of_draft["new_tokens"] = [len(of_text) for of_text in accepted]
        for k in (SMALL_K, LARGE_K):
            of_draft[f"rounds_k{k}"] = count_all_rounds(accepted, k)
        parts.append(pd.DataFrame(of_draft))
    return pd.concat(parts, ignore_index=True)


def length_table(found: Found) -> pd.DataFrame:
    """Return one entry for each draft and K from 1 to 16.

    Columns: size, layers, width and mark, as in `draft_table`; num_draft_tokens; length (new tokens
    a round); survival (the share of positions at which so many drafts in a row are right).
    """
    return pd.DataFrame(_lengths(found))


def _lengths(found: Found) -> Iterator[dict[str, Any]]:
    for each in found:
        accepted = each["accepted"]
        tokens = sum(map(len, accepted))
        right = survival(accepted, LARGE_K)
        for k in range(1, LARGE_K + 1):
            entry = {name: each[name] for name in ("size", "layers", "width", "mark")}
            entry["num_draft_tokens"] = k
            entry["length"] = tokens / count_all_rounds(accepted, k).sum()
            entry["survival"] = right[k - 1]
            yield entry
