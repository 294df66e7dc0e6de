"""What a pair would cost on a device: `specviz cost`. Puts rooflines, break-even acceptance and memory side by side; runs no model."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import pandas as pd
from transformers import AutoConfig

from specviz.bench.methods import parse
from specviz.costs.acceptance import check_rates, realigned_rows
from specviz.costs.breakeven import Costs, best_num_draft_tokens, speculation
from specviz.costs.ceilings import Ceilings
from specviz.costs.floor import floors
from specviz.costs.memory import ALWAYS, largest_batch, memory, peak_bytes
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import ModelShape, Numbers, named_pair
from specviz.engine.models.hub import find
from specviz.engine.strategies import Strategy, strategy
from specviz.util.validate import require_int

REALIGNING = ("eqspec", "exspec", "repadding")
MOST_DRAFTS = 8  # K looked at for the best one, if the rates go as far
GB = 1e9


def asked(options: Namespace) -> "Case":
    """What the arguments of the command ask for.

    Raises:
        ValueError, FileNotFoundError: an argument cannot be used; names it.
    """
    if options.shapes is not None and (options.target or options.draft):
        raise ValueError(
            f"--shapes {options.shapes} and --target or --draft exclude each other; give one of them"
        )
    if (options.target is None) != (options.draft is None):
        raise ValueError(
            "--target and --draft belong together; give both, or neither for the embedded pair"
        )
    embedded = Path(str(resources.files("specviz") / "zoo" / "weights"))
    target, draft = options.target or embedded / "target", options.draft or embedded / "draft"
    shapes = shapes_of(target, draft) if options.shapes is None else named_pair(options.shapes)
    name, chosen = parse(options.strategy)
    roofline = Roofline(*shapes, Ceilings.load(options.ceilings), options.dtype, options.captured)
    return Case(
        roofline, options.batch_sizes, options.num_draft_tokens, options.prompt_tokens, options.max_new_tokens, strategy(name, **chosen),
        options.rates,
    )  # fmt: skip


def shapes_of(target: str | Path, draft: str | Path) -> tuple[ModelShape, ModelShape]:
    """The shapes of two models by hub id or folder; only their configurations are read.

    Raises:
        ValueError, FileNotFoundError: a model cannot be found, or is of a kind whose size is not known here.
    """
    configs = [
        find(role, name).load(AutoConfig) for role, name in (("target", target), ("draft", draft))
    ]
    return ModelShape.from_config(configs[0].to_dict()), ModelShape.from_config(
        configs[1].to_dict()
    )


@dataclass(frozen=True)
class Case:
    """What is asked: a roofline, and the work.

    Attributes:
        batch_sizes, num_draft_tokens: each B, and K.
        prompt_tokens, max_new_tokens: of every request; a round is taken in the middle of the output.
        how: the strategy, by which rows and slots are kept. EQSPEC realigns the rows that `rates` let fall out of step, without rates all
            but one; EXSPEC is taken to find no group.
        rates: unconditional acceptance at positions 1..K and beyond, None where it is not known.

    Raises:
        ValueError: a size cannot be, or there are fewer rates than draft tokens.
    """

    roofline: Roofline
    batch_sizes: Sequence[int] = (1, 4, 8, 16, 32)
    num_draft_tokens: int = 5
    prompt_tokens: int = 512
    max_new_tokens: int = 128
    how: Strategy = field(default_factory=lambda: strategy("inplace"))
    rates: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not self.batch_sizes:
            raise ValueError("batch_sizes is empty; name at least one")
        for i, size in enumerate(self.batch_sizes):
            require_int(f"batch_sizes[{i}]", size)
        for name in ("num_draft_tokens", "prompt_tokens", "max_new_tokens"):
            require_int(name, getattr(self, name))
        if self.rates is not None and len(check_rates(self.rates)) < self.num_draft_tokens:
            raise ValueError(
                f"rates has {len(self.rates)} entries for num_draft_tokens={self.num_draft_tokens}; pass one for each, or lower it"
            )

    @property
    def slots(self) -> float:
        """T: slots that a verification attends to, halfway."""
        return self.prompt_tokens + self.max_new_tokens / 2 + self.num_draft_tokens

    def moved(self, rows: Numbers, num_draft_tokens: Numbers, slots: Numbers) -> Numbers:
        """Slots that a round realigns, on average."""
        if self.how.name not in REALIGNING or not num_draft_tokens:
            return 0.0
        return slots * (
            rows - 1
            if self.rates is None
            else realigned_rows(rows, list(self.rates)[: int(num_draft_tokens)])
        )

    @property
    def costs(self) -> Costs:
        """Seconds of each phase by (rows, num_draft_tokens, slots), realignment included."""
        return lambda rows, k, slots: self.roofline.phase_seconds(
            rows, k, slots, moved=self.moved(rows, k, slots)
        )

    def floors(self) -> pd.DataFrame:
        """One entry a batch size and phase, as `specviz.costs.floor.floors`; prompts are not among them."""
        tables = []
        for rows in self.batch_sizes:
            moved = self.moved(rows, self.num_draft_tokens, self.slots)
            table = floors(
                self.roofline.phases(rows, self.num_draft_tokens, self.slots, moved=moved)
            )
            tables.append(table[table["phase"] != "schedule"].assign(batch_size=rows))
        found = pd.concat(tables, ignore_index=True)
        return found[["batch_size", *found.columns.drop("batch_size")]]

    def paying(self) -> pd.DataFrame:
        """Whether speculation pays. One entry a batch size: batch_size, step_ms (autoregressive), round_ms, break_even_length and
        break_even_rate at K; with rates also mean_acceptance_length and speedup at K, best_num_draft_tokens and best_speedup.
        """
        entries = []
        for rows in self.batch_sizes:
            most = max(self.num_draft_tokens, MOST_DRAFTS)
            table = speculation(self.costs, rows, self.slots, most, self.rates)
            entry = {"batch_size": rows, "step_ms": table["round_ms"][0]} | table.iloc[
                self.num_draft_tokens
            ].drop("num_draft_tokens").to_dict()
            if self.rates is not None:
                best = best_num_draft_tokens(self.costs, rows, self.slots, self.rates, most)
                entry |= {"best_num_draft_tokens": best, "best_speedup": table["speedup"][best]}
            entries.append({name: value for name, value in entry.items() if name != "tokens_per_s"})
        return pd.DataFrame(entries)

    def memory(self) -> pd.DataFrame:
        """One entry a batch size: batch_size, weights_gb, kv_gb, logits_gb (and tokens), workspace_gb (the hungriest phase's), peak_gb."""
        entries = []
        for rows in self.batch_sizes:
            table = memory(
                self.roofline.target, self.roofline.draft, self.how, dtype=self.roofline.dtype, batch_size=rows,
                num_draft_tokens=self.num_draft_tokens, prompt_tokens=self.prompt_tokens, max_new_tokens=self.max_new_tokens,
            )  # fmt: skip
            held = table[table["when"] == ALWAYS].set_index("part")["bytes"]
            sums = {kind: held[held.index.str.endswith(kind)].sum() for kind in ("weights", "K/V")}
            rest, peak = held.sum() - sum(sums.values()), peak_bytes(table)
            parts = {
                "weights_gb": sums["weights"],
                "kv_gb": sums["K/V"],
                "logits_gb": rest,
                "workspace_gb": peak - held.sum(),
            }
            entries.append(
                {"batch_size": rows}
                | {name: count / GB for name, count in parts.items()}
                | {"peak_gb": peak / GB}
            )
        return pd.DataFrame(entries)

    def largest_batch(self, memory_gb: float) -> int:
        """The largest B whose peak fits into so many gigabytes (10**9 bytes); 0 if none does."""
        return largest_batch(
            memory_gb * GB, self.roofline.target, self.roofline.draft, self.how, dtype=self.roofline.dtype,
            num_draft_tokens=self.num_draft_tokens, prompt_tokens=self.prompt_tokens, max_new_tokens=self.max_new_tokens,
        )  # fmt: skip
