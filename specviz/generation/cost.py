"""What a pair would cost on a device: floors of time, break-even acceptance and memory.

Runs no model and loads no weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from transformers import AutoConfig

from specviz.costs.breakeven import realigned_rows, speculation
from specviz.costs.memory import ALWAYS, RunMemory, peak_of, weight_bytes
from specviz.costs.roofline import Roofline, floors
from specviz.costs.shapes import ModelShape, Numbers
from specviz.engine.models.compat import HYBRIDS, STATES, layer_types
from specviz.engine.models.hub import find
from specviz.engine.strategies import Strategy, strategy
from specviz.generation.measure import measure_config

REALIGNING = ("eqspec", "exspec", "repadding")
LARGEST_BEST_K = 8  # the best K is searched up to here, if the rates go as far
GB = 1e9


def shapes_of(
    target: str | Path, draft: str | Path, dtype: str = "float32"
) -> tuple[ModelShape, ModelShape]:
    """Return the shapes of two models by hub id or folder. Only their configurations are read.

    dtype: in which layers of state keep them.

    Raises:
        ValueError, FileNotFoundError: a model cannot be found, is of an unknown class, or routes
            tokens to experts.
    """
    shapes: list[ModelShape] = []
    for role, source in [("target", find("target", target)), ("draft", find("draft", draft))]:
        config = source.load(AutoConfig)
        if layer_types(config.get_text_config()) & (STATES | HYBRIDS):
            shapes.append(measure_config(role, config, dtype))
        else:
            shapes.append(ModelShape.from_config(config.to_dict()))
    return shapes[0], shapes[1]


@dataclass(frozen=True)
class Case:
    """A pair on a device, and its work.

    Attributes:
        batch_sizes, num_draft_tokens: each B, and K.
        prompt_tokens, max_new_tokens: of every request. A round is taken in the middle of the
            output.
        how: the strategy, which decides what rows and slots are kept. EQSPEC realigns the rows
            that `rates` let fall out of step, or all but one without rates. EXSPEC is assumed to
            find no group.
        rates: unconditional acceptance at positions 1..K and beyond; None: unknown.

    Raises:
        ValueError: there are fewer rates than draft tokens.
    """

    roofline: Roofline
    batch_sizes: Sequence[int] = (1, 4, 8, 16, 32)
    num_draft_tokens: int = 5
    prompt_tokens: int = 512
    max_new_tokens: int = 128
    how: Strategy = field(default_factory=lambda: strategy("inplace"))
    rates: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.rates is not None and len(self.rates) < self.num_draft_tokens:
            raise ValueError(
                f"rates has {len(self.rates)} entries for "
                f"num_draft_tokens={self.num_draft_tokens}; pass one for each, or lower it"
            )

    @property
    def slots(self) -> float:
        """T: slots that a verification attends to, in the middle of the output."""
        return self.prompt_tokens + self.max_new_tokens / 2 + self.num_draft_tokens

    def moved(self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers) -> Numbers:
        """Return slots that a round realigns, on average."""
        if self.how.name not in REALIGNING or not num_draft_tokens:
            return 0.0
        if self.rates is None:
            return slots * (rows - 1)
        rates = list(self.rates)[: int(num_draft_tokens)]
        return slots * realigned_rows(rows, rates)

    def phase_seconds(
        self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers, **work: Numbers
    ) -> dict[str, Numbers]:
        """Return the seconds of each phase, realignment included: a `RoundCosts`."""
        moved = self.moved(rows, num_draft_tokens, slots)
        work = {"moved": moved, **work}
        return self.roofline.phase_seconds(rows, num_draft_tokens, slots, **work)

    def floors(self) -> pd.DataFrame:
        """Return `roofline.floors` for each batch size, without the phase of prompts."""
        k = self.num_draft_tokens
        tables = []
        for rows in self.batch_sizes:
            moved = self.moved(rows, k, self.slots)
            table = floors(self.roofline.phases(rows, k, self.slots, moved=moved))
            tables.append(table[table["phase"] != "schedule"].assign(batch_size=rows))
        found = pd.concat(tables, ignore_index=True)
        return found[["batch_size", *found.columns.drop("batch_size")]]

    def paying(self) -> pd.DataFrame:
        """Return whether speculation pays.

        One entry a batch size: batch_size, step_ms (autoregressive), round_ms, break_even_length
        and break_even_rate at K; with rates also mean_acceptance_length and speedup at K,
        best_num_draft_tokens and best_speedup.
        """
        max_draft_tokens = max(self.num_draft_tokens, LARGEST_BEST_K)
        entries = []
        for rows in self.batch_sizes:
            table = speculation(self.phase_seconds, rows, self.slots, max_draft_tokens, self.rates)
            at_k = table.iloc[self.num_draft_tokens].drop("num_draft_tokens").to_dict()
            entry = {"batch_size": rows, "step_ms": table["round_ms"][0], **at_k}
            if entry.pop("tokens_per_s", None) is not None:
                best = int(table["tokens_per_s"].idxmax())
                entry |= {"best_num_draft_tokens": best, "best_speedup": table["speedup"][best]}
            entries.append(entry)
        return pd.DataFrame(entries)

    def memory(self) -> pd.DataFrame:
        """Return one entry a batch size: its memory by use.

        Columns: batch_size, weights_gb, kv_gb (states included), logits_gb (tokens included),
        workspace_gb (of the largest phase), peak_gb.
        """
        entries = []
        for rows in self.batch_sizes:
            parts = self._memory(rows).parts()
            weights = weight_bytes(parts)
            kv = sum(size for part, _, size in parts if part.endswith(("K/V", "states")))
            always = sum(size for _, when, size in parts if when == ALWAYS)
            peak = peak_of(parts)
            entries.append([weights, kv, always - weights - kv, peak - always, peak])
        names = ["weights_gb", "kv_gb", "logits_gb", "workspace_gb", "peak_gb"]
        table = pd.DataFrame(entries, columns=names) / GB
        table.insert(0, "batch_size", list(self.batch_sizes))
        return table

    def largest_batch(self, memory_gb: float) -> int:
        """Return the largest B whose peak fits into so many 10**9 bytes, 0 if none does."""
        return self._memory(1).largest_batch(memory_gb * GB)

    def _memory(self, rows: int) -> RunMemory:
        return RunMemory(
            target=self.roofline.target,
            draft=self.roofline.draft,
            strategy=self.how,
            dtype=self.roofline.dtype,
            prompt_tokens=self.prompt_tokens,
            max_new_tokens=self.max_new_tokens,
            batch_size=rows,
            num_draft_tokens=self.num_draft_tokens,
        )
