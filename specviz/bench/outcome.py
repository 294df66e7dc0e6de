"""What is known of a cell once it has run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch

from specviz.checks.compare import compare
from specviz.engine.models.pair import Pair
from specviz.generation.generate import generate
from specviz.generation.result import Result

Outcome = dict[str, Any]
# What an outcome says of a run, None if the cell failed before it was known.
FIGURES = (
    "exact_match", "near_ties", "mean_acceptance_length", "rounds", "new_tokens", "seconds",
    "tokens_per_s", "round_ms", "draft_ms", "sync_share", "verified_a_round", "uncounted_s",
    "in_flight", "devices", "training_s",
)  # fmt: skip


@dataclass(frozen=True)
class SharedWork:
    """What cells that must write the same texts share.

    Attributes:
        prompts: token ids.
        reference: what the target writes for each prompt alone.
    """

    pair: Pair
    prompts: Sequence[Sequence[int]]
    reference: Result

    def known_texts(self) -> dict[tuple[int, ...], list[int]]:
        """Return what the target writes after each prompt of the reference."""
        prompts = map(tuple, self.reference.prompts)
        return dict(zip(prompts, self.reference.tokens, strict=True))


def reference_of(pair: Pair, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Result:
    """Return what the target writes for each prompt alone.

    Raises:
        ValueError: as `generate`.
    """
    return generate(
        pair,
        prompts,
        strategy="autoregressive",
        batch_size=1,
        max_new_tokens=max_new_tokens,
        progress=False,
    )


def stamp(reference: Result, prompts: int) -> Outcome:
    """Say on what, with what and when this process runs."""
    meta = reference.meta
    return {
        "target": meta["target"],
        "draft": meta["draft"],
        "dtype": meta["dtype"],
        "device_name": meta["device"],
        **meta["versions"],
        "threads": torch.get_num_threads(),
        "prompts": prompts,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def failed(error: BaseException) -> Outcome:
    """Return the outcome of a cell that raised an error."""
    why = " ".join(str(error).split())
    if not isinstance(error, ValueError):
        why = f"{type(error).__name__}: {why}"
    return dict.fromkeys(FIGURES) | {"failure": why[:300] or type(error).__name__}


def per_round(result: Result) -> Outcome:
    """Return medians over the largest rounds. On a GPU, events on the stream measure them.

    round_ms: a round from its drafts on, without prompts. draft_ms: its phase draft. sync_share:
    its phase synchronise.
    """
    stages = result.stages
    rows = result.rounds["batch"]
    full = rows == rows.max()
    ms = stages["total_ms"] - stages["schedule_ms"]
    share = stages["sync_ms"] / ms
    return {
        "round_ms": float(ms[full].median()),
        "draft_ms": float(stages["draft_ms"][full].median()),
        "sync_share": float(share[full].median()),
    }


def compare_texts(result: Result, work: SharedWork) -> Outcome:
    """Return exact_match, near_ties, and a failure if rounding does not explain a difference."""
    reference = work.reference
    differing = 0
    for ours, theirs in zip(result.tokens, reference.tokens, strict=True):
        differing += ours != theirs
    prompts = len(reference.tokens)
    outcome: Outcome = {"exact_match": 1 - differing / prompts, "near_ties": 0, "failure": ""}
    if differing:
        causes = compare(result, reference, pair=work.pair).summary.iloc[0]
        outcome["near_ties"] = int(causes["near_ties"])
        if causes["near_ties"] < differing:
            outcome["failure"] = (
                f"{differing} of {prompts} texts differ from decoding alone, "
                f"{causes['unexplained']} of them not explained by noise, "
                f"{causes['unknown']} for an unknown cause"
            )
    return outcome
