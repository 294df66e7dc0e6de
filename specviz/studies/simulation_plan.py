"""What `specviz study simulate` can answer: a plan, and the tables that are simulated by it.

What is simulated, and what is not, is said in `specviz.simulation`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import pandas as pd

from specviz.engine.names import parse
from specviz.simulation import (
    Acceptance,
    Policy,
    Workload,
    compare,
    grouping_rates,
    latency_under_load,
    refill_or_grouping,
)
from specviz.simulation.cluster import TooSlowError, size_cluster
from specviz.simulation.studies import costs_of, held_out
from specviz.studies.simulation_inputs import DEFAULT_K, Inputs
from specviz.util.validate import require_int, short

POLICIES = (
    "autoregressive",
    "eqspec:refill=false",
    "eqspec",
    "exspec",
    "exspec:fallback=partial",
    "exspec:fallback=wait",
    "inplace",
)
MAX_REQUESTS = 1_000_000_000
ROUTER = "round_robin"
_MOST_REPLICAS = 512  # replicas are simulated together; more of them gain no speed
_REPLICA_REQUESTS = 500  # at least
_GROUPING_REQUESTS = 256  # of each acceptance
_GROUPING_REPLICAS = 8
_EQUAL_PROMPT_TOKENS = 16  # as in the paper


@dataclass(frozen=True)
class SimulationPlan:
    """What to simulate. `requests` is the sum over replicas.

    Raises:
        ValueError: a policy is unknown or cannot be simulated, or a number is too small.
    """

    policies: Sequence[str] = POLICIES
    requests: int = 10_000
    batch_size: int = 8
    num_draft_tokens: int = DEFAULT_K
    window: int = 32
    new_tokens: int = 64
    rate: float | None = None
    latency_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_int("requests", self.requests, maximum=MAX_REQUESTS)
        if self.latency_s is not None and self.rate is None:
            raise ValueError(
                f"latency_s={self.latency_s} needs a rate; "
                "give the requests a second that have to end in that time"
            )
        self.chosen()  # an unknown policy is refused before a model runs

    def chosen(self) -> list[Policy]:
        """Return the policies as objects."""
        found = []
        for text in self.policies:
            name, options = parse(text)
            given = {"num_draft_tokens": self.num_draft_tokens, "window": self.window, **options}
            try:
                found.append(Policy(name, self.batch_size, **given))  # type: ignore[arg-type]
            except TypeError:
                raise ValueError(
                    f"policies names {text!r}, whose options are not simulated; "
                    "use window, fallback, max_wait or refill"
                ) from None
        return found

    @property
    def replicas(self) -> int:
        """As many as the simulation runs fast with, if each has enough requests."""
        return max(1, min(_MOST_REPLICAS, self.requests // _REPLICA_REQUESTS))

    def workload(self, inputs: Inputs) -> Workload:
        """Draw the requests, all at once or at the rate."""
        return Workload.drawn(
            -(-self.requests // self.replicas),
            inputs.prompt_tokens,
            self.new_tokens,
            inputs.acceptance,
            arrivals=self.rate,
            replicas=self.replicas,
            seed=self.seed,
        )


def compare_policies(plan: SimulationPlan, inputs: Inputs) -> pd.DataFrame:
    """Run `compare`, and add the CPU seconds of simulating each policy as simulated_cpu_s."""
    workload = plan.workload(inputs)
    tables = []
    for policy in plan.chosen():
        begin = time.process_time()
        table = compare(workload, [policy], inputs.costs, skip=0.1 if plan.rate else 0.0)
        tables.append(table.assign(simulated_cpu_s=time.process_time() - begin))
    table = pd.concat(tables, ignore_index=True)
    return table.assign(ratio=table["tokens_per_s"] / table["tokens_per_s"].iloc[0])


def size_clusters(plan: SimulationPlan, inputs: Inputs) -> pd.DataFrame:
    """Find for each policy the fewest devices that keep the latency.

    Columns: policy, devices, and those of `Sizing.tried`; NaN and a note if no number of
    devices keeps it.
    """
    assert plan.rate is not None
    assert plan.latency_s is not None
    workload = plan.workload(inputs)
    entries: list[dict[str, object]] = []
    for policy in plan.chosen():
        costs = costs_of(inputs.costs, policy)
        try:
            found = size_cluster(
                workload,
                policy,
                costs,
                rate=plan.rate,
                latency_s=plan.latency_s,
                router=ROUTER,
                seed=plan.seed,
            )
        except TooSlowError as error:
            entries.append({"policy": policy.name, "note": str(error)})
            continue
        fewest = found.tried[found.tried["devices"] == found.devices].iloc[0]
        entries.append({"policy": policy.name, **fewest.drop("enough")})
    return pd.DataFrame(entries)


def study_latency(plan: SimulationPlan, inputs: Inputs) -> pd.DataFrame:
    """Run `latency_under_load`. Loads are shares of what the last policy can do."""
    policies = plan.chosen()[::-1]
    return latency_under_load(plan.workload(inputs), policies, inputs.costs, seed=plan.seed)


def study_refill(plan: SimulationPlan, inputs: Inputs) -> pd.DataFrame:
    """Run `refill_or_grouping`."""
    return refill_or_grouping(
        plan.workload(inputs),
        inputs.costs,
        batch_size=plan.batch_size,
        num_draft_tokens=plan.num_draft_tokens,
        window=plan.window,
    )


def study_grouping(plan: SimulationPlan, inputs: Inputs) -> pd.DataFrame:
    """Run `grouping_rates` for the inputs' acceptance and three constant ones."""
    acceptances = {}
    for alpha in (0.3, 0.6, 0.9):
        acceptances[f"alpha={alpha}"] = Acceptance.geometric(alpha, plan.num_draft_tokens)
    acceptances["source"] = inputs.acceptance
    prompts: dict[str, int | Sequence[int]] = {
        "equal": _EQUAL_PROMPT_TOKENS,
        "mixed": inputs.prompt_tokens,
    }
    return grouping_rates(
        acceptances,
        prompts,
        new_tokens=plan.new_tokens,
        seed=plan.seed,
        requests=_GROUPING_REQUESTS,
        replicas=_GROUPING_REPLICAS,
    )


def study_held_out(plan: SimulationPlan, inputs: Inputs) -> pd.DataFrame:
    """Run `held_out`. Raise ValueError if the inputs are not those of recorded runs."""
    if not inputs.runs:
        raise ValueError("question='held_out' compares with recorded runs; leave out --ceilings")
    return held_out(inputs.runs)


QUESTIONS: dict[str, Callable[[SimulationPlan, Inputs], pd.DataFrame]] = {
    "grouping": study_grouping,
    "latency": study_latency,
    "refill": study_refill,
    "held_out": study_held_out,
}
# The settings of a plan that a question does not use.
UNUSED = {
    "grouping": ("policies", "requests", "window", "rate", "latency_s"),
    "latency": ("rate", "latency_s"),
    "refill": ("policies", "rate", "latency_s"),
    "held_out": ("policies", "requests", "window", "new_tokens", "rate", "latency_s", "seed"),
}


def check(plan: SimulationPlan, question: str | None) -> None:
    """Raise ValueError if the plan has a setting that the question does not use."""
    for item in fields(SimulationPlan):
        value = getattr(plan, item.name)
        if question is not None and item.name in UNUSED[question] and value != item.default:
            raise ValueError(
                f"{item.name}={short(value)} is not used by question {question}; leave it out"
            )


def answer(
    plan: SimulationPlan, inputs: Inputs, question: str | None = None
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Return (table, conditions) for a question, or of the comparison or sizing without one.

    Raises:
        ValueError: as `check`.
    """
    check(plan, question)
    plan = replace(plan, num_draft_tokens=max(inputs.costs))
    if question is not None:
        table = QUESTIONS[question](plan, inputs)
    elif plan.latency_s is None:
        table = compare_policies(plan, inputs)
    else:
        table = size_clusters(plan, inputs)
    return table, {**inputs.conditions, **_settings(plan, inputs, question)}


def _settings(plan: SimulationPlan, inputs: Inputs, question: str | None) -> dict[str, object]:
    settings: dict[str, object] = {"simulated": question or "policies"}
    if question == "held_out":
        return settings | {"num_draft_tokens": plan.num_draft_tokens}
    length = inputs.acceptance.mean_acceptance_length
    lengths = sorted(set(inputs.prompt_tokens))
    prompt_tokens: object = lengths
    if len(lengths) > 16:
        prompt_tokens = f"{len(lengths)} lengths from {lengths[0]} to {lengths[-1]}"
    settings |= {
        "new_tokens": plan.new_tokens,
        "num_draft_tokens": plan.num_draft_tokens,
        "mean_acceptance_length": round(length, 4),
        "seed": plan.seed,
        "prompt_tokens": prompt_tokens,
    }
    if question == "grouping":
        return settings | {"requests": _GROUPING_REQUESTS, "replicas": _GROUPING_REPLICAS}
    settings |= {"requests": plan.requests, "replicas": plan.replicas}
    for name in ("batch_size", "window", "rate", "latency_s"):
        if question is None or name not in UNUSED[question]:
            settings[name] = getattr(plan, name)
    return settings
