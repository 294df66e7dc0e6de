"""What `plan` returns: options, what they take, and all that would fit. It runs no model."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

SHOWN = 5  # lines of the table


@dataclass(frozen=True)
class Plan:
    """Options that keep a run within a budget.

    Attributes:
        budget_bytes: for weights and all that a run takes.
        peak_bytes: what it takes at most by the memory model, with the margin.
        weight_bytes: of the models that take part.
        tokens_per_s: predicted, for ranking only.
        least_bytes: the smallest budget that could be planned for.
        options: of `generate`: batch_size, num_draft_tokens, drafter and levers.
        parts: the memory, part by part: part, when it is held, bytes.
        table: all that fits, the fastest first.
        devices: what each device holds at most: device, the target's layers there, weight_bytes,
            kv_bytes, work_bytes and peak_bytes. Where models are spread by a device_map, logits and
            workspace count on each device, so the peaks add up to more than `peak_bytes`.
    """

    budget_bytes: int
    peak_bytes: int
    weight_bytes: int
    tokens_per_s: float
    least_bytes: int
    options: dict[str, Any]
    parts: pd.DataFrame = field(repr=False)
    table: pd.DataFrame = field(repr=False)
    devices: pd.DataFrame = field(repr=False)

    def __repr__(self) -> str:
        best = self.table.iloc[0]
        chosen = f"B = {best['batch_size']}, K = {best['num_draft_tokens']}"
        lines = [
            f"<Plan for {as_size(self.budget_bytes)}: {chosen}, "
            f"{as_size(self.peak_bytes)} at most, "
            f"{as_size(self.weight_bytes)} of it weights; {len(self.table)} ways fit, the least "
            f"takes {as_size(self.least_bytes)}>"
        ]
        shown = self.table.head(SHOWN).astype(object).where(self.table.head(SHOWN).notna(), "-")
        shown["peak"] = [as_size(size) for size in shown.pop("peak_bytes")]
        shown["tokens_per_s"] = [f"{speed:.0f}" for speed in shown.pop("tokens_per_s")]
        lines.append(shown.to_string(index=False))
        if len(self.devices) > 1:
            lines += [_device_words(entry) for entry in self.devices.to_dict("records")]
        return "\n".join(lines)


def _device_words(entry: dict[str, Any]) -> str:
    """Return a line about a device."""
    layers = f"layers {entry['layers']} of the target" if entry["layers"] else "no layer of it"
    return (
        f"{entry['device']}: {layers}, {as_size(entry['weight_bytes'])} of weights, "
        f"{as_size(entry['kv_bytes'])} of K/V, {as_size(entry['peak_bytes'])} at most"
    )


def as_size(count: float) -> str:
    """Return bytes in words: 31.5 MB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"
