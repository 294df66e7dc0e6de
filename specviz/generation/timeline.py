"""When each phase of a run began and ended, on one clock for all lanes.

Contract: arrays of milliseconds in, tables out. Not known here: models and records.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from specviz.record.schema import PHASES


def timeline(spans_ms: Sequence[np.ndarray]) -> pd.DataFrame:
    """Return lane, round, phase, start_ms and stop_ms of every phase, by start.

    spans_ms: for each lane (rounds, 5, 2), begin and end of each phase.
    """
    parts = []
    for lane, spans in enumerate(spans_ms):
        rounds = len(spans)
        columns = {
            "lane": np.full(rounds * len(PHASES), lane),
            "round": np.repeat(np.arange(rounds), len(PHASES)),
            "phase": list(PHASES) * rounds,
            "start_ms": spans[..., 0].ravel(),
            "stop_ms": spans[..., 1].ravel(),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts).sort_values("start_ms", kind="stable", ignore_index=True)
