"""A simulation of the schedulers. It runs no model.

Requests, costs and a policy go in. Throughput, latency, grouping and cluster sizes come out.

workload = Workload.drawn(1000, range(20, 201), 64, Acceptance.geometric(0.7), arrivals=50.0)
costs = Costs.measured(traces)  # or Costs(**roofline.simulated(num_draft_tokens=5))
simulate(workload, Policy("exspec", window=32), costs, devices=4).summary()
"""

from specviz.simulation.acceptance import Acceptance
from specviz.simulation.cluster import Sizing, size_cluster
from specviz.simulation.costs import Costs
from specviz.simulation.policy import Policy
from specviz.simulation.result import Simulation
from specviz.simulation.selection import Everything, Tetris, Threshold
from specviz.simulation.serving import simulate
from specviz.simulation.studies import (
    compare,
    grouping_rates,
    held_out,
    latency_under_load,
    refill_or_grouping,
)
from specviz.simulation.tables import AcceptanceTable, replay
from specviz.simulation.workload import Workload

__all__ = [
    "Acceptance",
    "AcceptanceTable",
    "Costs",
    "Everything",
    "Policy",
    "Simulation",
    "Sizing",
    "Tetris",
    "Threshold",
    "Workload",
    "compare",
    "grouping_rates",
    "held_out",
    "latency_under_load",
    "refill_or_grouping",
    "replay",
    "simulate",
    "size_cluster",
]
