"""`specviz simulate`: where its costs and acceptances come from, and which table answers what was asked.

They come from recorded runs, which are made here if none are given, or from a roofline and stated acceptances. What is simulated, and
what is not, stands in `specviz.simulation`.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from specviz.bench.methods import parse
from specviz.costs.ceilings import Ceilings
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import named_pair
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.strategies import strategy
from specviz.generation.generate import generate, generate_interleaved
from specviz.record.trace import Trace
from specviz.simulation import (
    Acceptance,
    Costs,
    Policy,
    Workload,
    compare,
    grouping_rates,
    latency_under_load,
    refill_or_grouping,
)
from specviz.simulation.cluster import TooSlowError, size_cluster
from specviz.simulation.studies import costs_of, held_out
from specviz.util.files import conditions
from specviz.util.validate import require_int, short

POLICIES = (
    "autoregressive", "eqspec:refill=false", "eqspec", "exspec", "exspec:fallback=partial", "exspec:fallback=wait", "inplace",
)  # fmt: skip
STUDIES = {  # each with what has no part in it
    "grouping": ("policies", "requests", "window", "devices", "router", "rate", "latency_s"),
    "latency": ("rate", "latency_s"),
    "refill": ("policies", "devices", "router", "rate", "latency_s"),
    "held_out": (
        "policies",
        "requests",
        "window",
        "new_tokens",
        "devices",
        "router",
        "rate",
        "latency_s",
        "seed",
    ),
}
DRAFTS = 5  # K where nobody says
SHOWN = (
    "policy", "moves", "devices", "load", "own_load", "requests_per_s", "rounds", "tokens_per_s", "ratio", "latency_s", "latency_p50_s",
    "latency_p90_s", "latency_p99_s", "waiting_mean_s", "grouping_rate", "mean_rows", "busy_share", "note", "simulated_cpu_s",
)  # fmt: skip
_LANES = 512  # devices of all replicas together that a simulation likes to have
_LEAST = 500  # requests of a replica
_REQUESTS, _REPLICAS = 256, 8  # of each acceptance in the study of grouping
_SHORT = 16  # tokens of equally long prompts in the study of grouping, as the paper has them


@dataclass(frozen=True)
class Source:
    """What a simulation is fed with: costs by drafts a round, acceptance, prompt lengths to draw from, and what they were taken from."""

    costs: Mapping[int, Costs]
    acceptance: Acceptance
    prompt_tokens: Sequence[int]
    conditions: Mapping[str, object]
    runs: Sequence[Trace] = ()


def record_runs(
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    batch_size: int = 8,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 32,
    halves: bool = False,
    progress: bool = True,
) -> list[Trace]:
    """Runs that costs can be fitted to: four strategies at B = 1, half of `batch_size` and all of it, after one that warms up.

    On a CPU they run side by side, so that what slows the machine slows all alike. halves: all for each half of the prompts, and at B = 2.
    """
    sizes = sorted(
        {1, max(1, require_int("batch_size", batch_size) // 2), batch_size}
        | ({min(2, batch_size)} if halves else set())
    )
    parts = [prompts[::2], prompts[1::2]] if halves else [prompts]
    asked: dict[str, Any] = {
        "num_draft_tokens": num_draft_tokens,
        "max_new_tokens": max_new_tokens,
        "record": True,
    }
    generate(pair, prompts, strategy="eqspec", batch_size=batch_size, progress=False, **asked)
    runs = []
    for part, name, size in product(
        parts, ("autoregressive", "inplace", "eqspec", "exspec"), sizes
    ):
        how = strategy(name, window=2 * size) if name == "exspec" else name
        runs.append({"prompts": part, "strategy": how, "batch_size": size, **asked})
    ended = generate_interleaved(pair, runs)
    found = dict(tqdm(ended, desc="record", total=len(runs), unit="run", disable=not progress))
    return [trace for _, result in sorted(found.items()) if (trace := result.trace) is not None]


def from_runs(traces: Sequence[Trace]) -> Source:
    """Costs, acceptance by request and prompt lengths of recorded runs; those that draft must all have the same K.

    Raises:
        ValueError: there are none that draft, or several K.
    """
    drafting = [trace for trace in traces if trace.meta["num_draft_tokens"]]
    plain = [trace for trace in traces if not trace.meta["num_draft_tokens"]]
    acceptance = Acceptance.measured(drafting)
    costs = {
        int(runs[0].meta["num_draft_tokens"]): Costs.measured(runs)
        for runs in (plain, drafting)
        if runs
    }
    prompts = [len(drafting[0].prompt(request)) for request in range(drafting[0].num_requests)]
    said = conditions(
        drafting[0].meta,
        costs="measured",
        runs=len(traces),
        batch_sizes=sorted({trace.meta["batch_size"] for trace in traces}),
    )
    return Source(costs, acceptance, prompts, said, traces)


def from_roofline(
    roofline: Roofline,
    num_draft_tokens: int,
    acceptance: Acceptance,
    prompt_tokens: Sequence[int],
    **asked: object,
) -> Source:
    """Floors as costs, with and without speculation: what a device could do at best."""
    costs = {k: Costs(**roofline.simulated(k)) for k in (0, num_draft_tokens)}
    versions = {name: version(name) for name in ("specviz", "numpy")}
    said = {
        "device": roofline.ceilings.device,
        "dtype": roofline.dtype,
        "versions": versions,
        "costs": "roofline",
        **asked,
    }
    return Source(
        costs,
        acceptance,
        prompt_tokens,
        said | {"created": datetime.now(UTC).isoformat(timespec="seconds")},
    )


@dataclass(frozen=True)
class Plan:
    """What is to be simulated with a source. `requests` in all, in replicas of their own where there are enough of them.

    Raises:
        ValueError: a policy is unknown or cannot be, a number is too small.
    """

    policies: Sequence[str] = POLICIES
    requests: int = 10_000
    batch_size: int = 8
    num_draft_tokens: int = DRAFTS
    window: int = 32
    new_tokens: int = 64
    devices: int = 1
    router: str = "round_robin"
    rate: float | None = None
    latency_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("requests", "devices"):
            require_int(name, getattr(self, name))
        if self.latency_s is not None and self.rate is None:
            raise ValueError(
                f"latency_s={self.latency_s} comes without a rate; give the requests a second that have to end in that time"
            )
        self.chosen  # noqa: B018 - unknown policies are refused before a model runs

    @classmethod
    def of(cls, options: Namespace) -> "Plan":
        """From the arguments of the command. Raises ValueError as the plan itself and `check` do."""
        named = {"policies": options.policies, "num_draft_tokens": options.num_draft_tokens}
        same = ("requests", "batch_size", "window", "devices", "router", "rate", "seed")
        asked = {name: value for name, value in named.items() if value is not None} | {
            name: getattr(options, name) for name in same
        }
        plan = cls(**asked, new_tokens=options.max_new_tokens, latency_s=options.latency)
        plan.check(options.study)
        return plan

    def check(self, study: str | None) -> None:
        """Raise ValueError if something was asked for that has no part in the study."""
        for item in fields(self):
            if (
                item.name in STUDIES.get(study or "", ())
                and (value := getattr(self, item.name)) != item.default
            ):
                raise ValueError(
                    f"{item.name}={short(value)} has no part in the study of {study}; leave it out"
                )

    def fitting(self, source: Source) -> "Plan":
        """The same with the K of the source."""
        return replace(self, num_draft_tokens=max(source.costs))

    @property
    def chosen(self) -> list[Policy]:
        """The policies as objects."""
        found = []
        for text in self.policies:
            name, options = parse(text)
            try:
                found.append(Policy(**{**self._shared, "strategy": name, **options}))  # type: ignore[arg-type]
            except TypeError:
                raise ValueError(
                    f"policies names {text!r}, whose options are not simulated; window, fallback, max_wait and refill are"
                ) from None
        return found

    @property
    def _shared(self) -> dict[str, object]:
        return {
            "batch_size": self.batch_size,
            "num_draft_tokens": self.num_draft_tokens,
            "window": self.window,
        }

    @property
    def replicas(self) -> int:
        """As many as keep all lanes busy, if each has enough requests."""
        return max(1, min(_LANES // self.devices, self.requests // (_LEAST * self.devices)))

    def workload(self, source: Source) -> Workload:
        """The requests: prompt lengths from the source, at once or at the rate."""
        return Workload.drawn(
            -(-self.requests // self.replicas), source.prompt_tokens, self.new_tokens, source.acceptance,
            arrivals=self.rate, replicas=self.replicas, seed=self.seed,
        )  # fmt: skip

    def compared(self, source: Source) -> pd.DataFrame:
        """`compare`, and in simulated_cpu_s the seconds of CPU that the simulation of each policy took."""
        workload, tables = self.workload(source), []
        for policy in self.chosen:
            begin = time.process_time()
            table = compare(
                workload,
                [policy],
                source.costs,
                devices=self.devices,
                router=self.router,
                skip=0.1 if self.rate else 0.0,
            )
            tables.append(table.assign(simulated_cpu_s=time.process_time() - begin))
        table = pd.concat(tables, ignore_index=True)
        return table.assign(ratio=table["tokens_per_s"] / table["tokens_per_s"].iloc[0])

    def sized(self, source: Source) -> pd.DataFrame:
        """For each policy the least number of devices that keeps the bound, and how they do; NaN, and a note why, where none does.

        Columns: policy, devices, and those of `Sizing.tried`.
        """
        workload, entries = self.workload(source), []
        for policy in self.chosen:
            costs = costs_of(source.costs, policy)
            try:
                found = size_cluster(
                    workload,
                    policy,
                    costs,
                    rate=self.rate or 0.0,
                    latency_s=self.latency_s or 0.0,
                    router=self.router,
                    seed=self.seed,
                )
            except TooSlowError as error:
                entries.append({"policy": policy.name, "note": str(error)})
                continue
            entries.append(
                {
                    "policy": policy.name,
                    **found.tried[found.tried["devices"] == found.devices].iloc[0].drop("enough"),
                }
            )
        return pd.DataFrame(entries)

    def latency(self, source: Source) -> pd.DataFrame:
        """`latency_under_load`; loads are shares of what the last policy can do, in place by default."""
        policies = self.chosen[::-1]
        workload = replace(self, rate=None).workload(source)
        return latency_under_load(
            workload,
            policies,
            source.costs,
            devices=self.devices,
            router=self.router,
            seed=self.seed,
        )

    def refill(self, source: Source) -> pd.DataFrame:
        """`refill_or_grouping`."""
        return refill_or_grouping(
            replace(self, rate=None).workload(source), source.costs, **self._shared
        )  # type: ignore[arg-type]

    def grouping(self, source: Source) -> pd.DataFrame:
        """`grouping_rates` for the source's acceptance and some plain ones, prompts of one length and of the source's."""
        plain = {
            f"alpha={alpha}": Acceptance.geometric(alpha, self.num_draft_tokens)
            for alpha in (0.3, 0.6, 0.9)
        }
        prompts: dict[str, int | Sequence[int]] = {"equal": _SHORT, "mixed": source.prompt_tokens}
        acceptances = plain | {"source": source.acceptance}
        return grouping_rates(
            acceptances,
            prompts,
            new_tokens=self.new_tokens,
            seed=self.seed,
            requests=_REQUESTS,
            replicas=_REPLICAS,
        )

    def answer(
        self, source: Source, study: str | None = None
    ) -> tuple[pd.DataFrame, dict[str, object]]:
        """The table that was asked for, and what it was simulated with.

        Raises:
            ValueError: as `check`.
        """
        self.check(study)
        if study == "held_out":
            if not source.runs:
                raise ValueError(
                    "study='held_out' holds the simulation against recorded runs; leave out --ceilings"
                )
            return held_out(source.runs), {
                **source.conditions,
                "simulated": study,
                "num_draft_tokens": self.num_draft_tokens,
            }
        made: Callable[[Source], pd.DataFrame] = (
            self.compared if self.latency_s is None else self.sized
        )
        table = made(source) if study is None else getattr(self, study)(source)
        asked: dict[str, Any] = {
            "simulated": study or "policies",
            "new_tokens": self.new_tokens,
            "num_draft_tokens": self.num_draft_tokens,
        }
        asked |= {
            "mean_acceptance_length": round(source.acceptance.mean_acceptance_length, 4),
            "seed": self.seed,
        }
        lengths = sorted(set(source.prompt_tokens))
        asked["prompt_tokens"] = (
            lengths
            if len(lengths) <= 16
            else f"{len(lengths)} lengths from {lengths[0]} to {lengths[-1]}"
        )
        if study == "grouping":
            asked |= {"requests": _REQUESTS, "replicas": _REPLICAS}
        else:
            asked |= {"requests": self.requests, "replicas": self.replicas}
            named = ("batch_size", "window", "devices", "router", "rate", "latency_s")
            asked |= {
                name: getattr(self, name)
                for name in named
                if name not in STUDIES.get(study or "", ())
            }
        return table, dict(source.conditions) | asked

    @staticmethod
    def shown(table: pd.DataFrame) -> pd.DataFrame:
        """What of a table fits on a screen."""
        return (
            table
            if "window" in table or "deviation" in table
            else table[[name for name in SHOWN if name in table]]
        )


def source_of(options: Namespace, load: Callable[[], tuple[Pair, Sequence[Prompt]]]) -> Source:
    """What the arguments of the command name: recorded runs, ceilings, or the pair that `load` gives, which is recorded first.

    Raises:
        ValueError, OSError: a file cannot be used, or arguments that belong together do not come together.
    """
    drafts = options.num_draft_tokens or DRAFTS
    stated = None if options.alpha is None else Acceptance.geometric(options.alpha, drafts)
    lengths = (
        None
        if options.prompt_tokens is None
        else range(min(options.prompt_tokens), max(options.prompt_tokens) + 1)
    )
    if options.captured and options.ceilings is None:
        raise ValueError(
            "--captured comes without --ceilings, and recorded runs cost what they cost; leave it out"
        )
    if (options.ceilings is None) != (options.shapes is None):
        raise ValueError(
            "--ceilings and --shapes belong together; give both, or neither for costs from recorded runs"
        )
    if options.ceilings is not None:
        if stated is None or lengths is None:
            raise ValueError(
                f"--ceilings {options.ceilings} says nothing of acceptance and prompts; give --alpha and --prompt-tokens, too"
            )
        roofline = Roofline(
            *named_pair(options.shapes),
            Ceilings.load(options.ceilings),
            options.dtype or "bfloat16",
            options.captured,
        )
        return from_roofline(
            roofline, drafts, stated, lengths, shapes=options.shapes, captured=options.captured
        )
    if options.runs:
        traces = [Trace.load(Path(run)) for run in options.runs]
    else:
        pair, prompts = load()
        halves = options.study == "held_out"
        new: dict[str, Any] = {"num_draft_tokens": drafts, "max_new_tokens": 64 if halves else 32}
        traces = record_runs(pair, prompts, batch_size=options.batch_size, halves=halves, **new)
    found = from_runs(traces)
    if max(found.costs) != (options.num_draft_tokens or max(found.costs)):
        raise ValueError(
            f"--num-draft-tokens {options.num_draft_tokens} is not that of --runs, {max(found.costs)}; leave it out"
        )
    return replace(
        found, acceptance=stated or found.acceptance, prompt_tokens=lengths or found.prompt_tokens
    )
