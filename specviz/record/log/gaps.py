"""What a log lacks, found from what was given.

Contract: `lacking` returns names of `missing.MISSING`. What is lacking in one forward or round
counts as lacking in the record. Not known here: what needs it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.record.log.events import Placed, RoundEnd
from specviz.record.log.requests import Requests
from specviz.record.missing import MISSING
from specviz.record.schema import MODELS

_WITHOUT_MODEL = (None, "lookup")  # drafters that run none


def lacking(
    header: Mapping[str, Any],
    requests: Requests,
    forwards: list[Placed],
    rounds: list[RoundEnd],
) -> list[str]:
    """Return the names of what the log lacks, in the order of MISSING."""
    found = set(header["missing"])
    has_drafts = any((event.values["drafts"] >= 0).any() for event in rounds)
    drafts_by_model = has_drafts and header.get("drafter") not in _WITHOUT_MODEL
    for model in MODELS if drafts_by_model else MODELS[:1]:
        found |= _of_forwards(model, [e.event for e in forwards if e.event.model == model])
        found |= _of_candidates(model, rounds)
    if any(event.ms is None or np.isnan(event.ms).any() for event in rounds):
        found.add("times")
    if any("finished" not in event.values for event in rounds):
        found.add("finished")
    if "kv_bytes_per_slot" not in header:
        found.add("kv_bytes")
    if None in requests.budgets:
        found.add("budget")
    return [name for name in MISSING if name in found]


def _of_forwards(model: str, events: list[Any]) -> set[str]:
    if not events:
        return {f"feeds.{model}"}
    fields = {"positions": "position", "slots": "slot", "visible": "sight"}
    found = set()
    for name, attribute in fields.items():
        if any(getattr(event, attribute) is None for event in events):
            found.add(f"{name}.{model}")
    return found


def _of_candidates(model: str, rounds: list[RoundEnd]) -> set[str]:
    found = set()
    for event in rounds:
        has_top = f"{model}_top_ids" in event.values
        if not has_top and not (model == "target" and "choices" in event.values):
            found.add(f"candidates.{model}")
        if not has_top and f"{model}_logprobs" not in event.values:
            found.add(f"logprobs.{model}")
    return found
