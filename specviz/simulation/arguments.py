"""Checks of what simulations are given. Each raises a ValueError that says what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specviz.simulation.acceptance import Acceptance
from specviz.simulation.costs import Costs
from specviz.simulation.policy import Policy
from specviz.simulation.workload import Workload
from specviz.util.validate import is_finite, is_int, is_list, require_int, require_kind, short

MAX_DEVICES = 2**20
ROUTERS = ("round_robin", "shortest_queue", "least_work")


def check_served(workload: object, policy: object, costs: object) -> None:
    """Check what every simulation takes."""
    check_workload(workload)
    require_kind("policy", policy, Policy, "make one with Policy(strategy, ...)")
    require_kind("costs", costs, Costs, "make them with Costs(...) or Costs.measured(runs)")


def check_workload(workload: object) -> None:
    """Check that this is a workload."""
    require_kind("workload", workload, Workload, "make one with Workload.drawn(...)")


def check_several(workload: object, policies: object, costs: object) -> None:
    """Check what a comparison of policies takes."""
    check_workload(workload)
    is_known = is_list(policies) and all(isinstance(policy, Policy) for policy in policies)
    if not is_known or not policies:
        raise ValueError(
            f"policies must be a list of Policy objects, got {short(policies)}; pass at least one"
        )
    check_costs_by_k(costs)


def check_costs_by_k(costs: object) -> None:
    """Check costs by drafts a round."""
    usable = isinstance(costs, Mapping) and bool(costs)
    if not usable or not all(_is_entry(k, each) for k, each in _items(costs)):
        raise ValueError(
            f"costs must be a dict from drafts a round to Costs, got {short(costs)}; "
            "pass for instance {0: costs, 5: other_costs}"
        )


def _items(mapping: Any) -> list[tuple[object, object]]:
    return list(mapping.items())


def _is_entry(k: object, costs: object) -> bool:
    return is_int(k) and isinstance(costs, Costs)


def check_devices(devices: object, router: object) -> None:
    """Check the number of devices and the router."""
    require_int("devices", devices, maximum=MAX_DEVICES)
    if not isinstance(router, str) or router not in ROUTERS:
        raise ValueError(
            f"router must be one of {', '.join(ROUTERS)}, got {short(router)}; choose one of them"
        )


def check_skip(skip: object) -> None:
    """Check the share of first requests that is left out."""
    if not is_finite(skip) or not 0 <= skip < 1:
        raise ValueError(f"skip must be >= 0 and < 1, got {short(skip)}; pass such a share")


def check_loads(loads: object) -> None:
    """Check loads, as shares of what a policy can do."""
    usable = is_list(loads) and bool(loads)
    if not usable or not all(is_finite(load) and load > 0 for load in _entries(loads)):
        raise ValueError(f"loads must be numbers > 0, got {short(loads)}; pass one or more")


def _entries(values: Any) -> list[object]:
    return list(values)


def check_acceptances(acceptances: object, prompts: object) -> None:
    """Check the acceptances and prompt lengths of a study, by their names."""
    for name, value in (("acceptances", acceptances), ("prompts", prompts)):
        if not isinstance(value, Mapping) or not value:
            raise ValueError(
                f"{name} must be a dict by name, got {short(value)}; pass at least one entry"
            )
    for key, each in _items(acceptances):
        require_kind(f"acceptances[{key!r}]", each, Acceptance, "make it with Acceptance.rates")
