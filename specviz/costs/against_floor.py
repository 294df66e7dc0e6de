"""A recorded run beside its floor: how far each phase is from the least time it could take."""

import numpy as np
import pandas as pd

from specviz.costs.floor import Floor, floors
from specviz.costs.roofline import Roofline
from specviz.metrics import RecordedRun, check_recorded
from specviz.record.schema import PHASES


def against_floor(run: RecordedRun, roofline: Roofline) -> pd.DataFrame:
    """Return one entry a phase over all rounds of a run, and a last one, "round", for their sum.

    Columns: phase, measured_ms, floor_ms, ratio (measured / floor; NaN where there was nothing to
    do), bound. The floors are those of the rows, drafts and lengths of each round. Prompts and
    moved K/V count when the next round of their row shows them.

    Raises:
        ValueError: the run was not recorded and is None, or its dtype is not the roofline's.
    """
    check_recorded(run)
    if run.meta["dtype"] != roofline.dtype:
        raise ValueError(
            f"dtype of the roofline must be the run's, {run.meta['dtype']!r}, got"
            f" {roofline.dtype!r}; make a roofline for that dtype"
        )
    table = floors(_floors_of(run, roofline))
    measured = [float(run.rounds[f"{phase}_ms"].astype(np.float64).sum()) for phase in PHASES]
    found = table[["phase", "floor_ms", "bound"]].copy()
    found.insert(1, "measured_ms", measured)
    longest = found["bound"][found["floor_ms"].idxmax()]
    total = {
        "phase": "round",
        "measured_ms": found["measured_ms"].sum(),
        "floor_ms": found["floor_ms"].sum(),
        "bound": longest,
    }
    found.loc[len(found)] = total
    floor_ms = found["floor_ms"].where(found["floor_ms"] > 0)  # NaN where there was no work
    found.insert(3, "ratio", found["measured_ms"] / floor_ms)
    return found


def _floors_of(run: RecordedRun, roofline: Roofline) -> dict[str, Floor]:
    """Return the floors of each phase, arrays over the run's rounds."""
    work = _work_per_round(run)
    k = work["drafted"]
    return roofline.phases(
        run.rounds["batch"].astype(np.float64),
        k,
        work["length"] + k,
        moved=work["moved"],
        carried=work["carried"],
        entering=work["entering"],
        prompt=work["prompt"] / np.maximum(work["entering"], 1),
    )


def _work_per_round(run: RecordedRun) -> dict[str, np.ndarray]:
    """Return what each round had to do, arrays with an entry a round.

    drafted: K; length: the rows' mean n; entering, prompt: new rows, and the tokens they read;
    moved, carried: slots of K/V moved within a row, and from row to row before the round.
    """
    rows = pd.DataFrame({name: values for name, values in run.rows.items() if values.ndim == 1})
    before = rows.groupby("request")[["row", "start_after"]].shift()
    is_new = before["row"].isna()
    changed_place = before["row"] != rows["row"]
    changed_start = before["start_after"] != rows["start"]
    realigned = rows["start_after"] != rows["start"]
    # A result has no moves. What moved shows in where a row starts, compared with its last round.
    rows["entering"] = is_new
    rows["prompt"] = (rows["length"] - 1).where(is_new, 0)
    rows["carried"] = (rows["pending"] - rows["start"]).where(
        ~is_new & (changed_place | changed_start), 0
    )
    rows["moved"] = (rows["pending_after"] - rows["start_after"]).where(realigned, 0)
    by_round = rows.groupby("round")
    table = by_round[["entering", "prompt", "carried", "moved"]].sum()
    table["drafted"] = by_round["drafted"].max()
    table["length"] = by_round["length"].mean()
    table = table.reindex(range(len(run.rounds["batch"])), fill_value=0)
    return {name: table[name].to_numpy(np.float64) for name in table}
