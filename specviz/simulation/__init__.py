"""A simulation of serving by the engine's own scheduler. It runs no model.

Requests, costs and a policy go in. Throughput, latency, grouping and cluster sizes come out.

workload = Workload.drawn(800, range(20, 201), 64, Acceptance.geometric(0.7), arrivals=50.0)
costs = Costs.measured(traces)  # or roofline.phase_seconds
simulate(workload, Policy("exspec", window=32), costs, devices=4).summary()
"""

from specviz.costs.rounds import Costs
from specviz.simulation.comparisons import Sizing, compare, latency_under_load, size_cluster
from specviz.simulation.device import plan_lanes
from specviz.simulation.policy import Policy, Tetris, Threshold
from specviz.simulation.serving import Simulation, simulate
from specviz.simulation.tables import AcceptanceTable, replay
from specviz.simulation.workload import Acceptance, Workload

__all__ = [
    "Acceptance",
    "AcceptanceTable",
    "Costs",
    "Policy",
    "Simulation",
    "Sizing",
    "Tetris",
    "Threshold",
    "Workload",
    "compare",
    "latency_under_load",
    "plan_lanes",
    "replay",
    "simulate",
    "size_cluster",
]
