"""What tables and charts read of a run: a `Trace`, or a result with the same columns.

Contract: `check_recorded` says what is wrong with anything else. Not known here: models and files.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from specviz.record.schema import Array
from specviz.util.validate import is_list, short

_PARTS = ("meta", "rounds", "rows")


class RecordedRun(Protocol):
    """What the tables read: a Trace, or a result with the same columns but no caches."""

    @property
    def meta(self) -> Mapping[str, Any]: ...
    @property
    def rounds(self) -> Mapping[str, Array]: ...
    @property
    def rows(self) -> Mapping[str, Array]: ...


def check_recorded(run: object, name: str = "run") -> None:
    """Raise ValueError unless `run` is a Result, a Trace or the like.

    It is None where a run was not recorded, as `result.trace` is without record=True. name: what
    the message calls the argument.
    """
    if run is None:
        raise ValueError(f"{name}=None: this run was not recorded; call generate(..., record=True)")
    if not all(isinstance(getattr(run, part, None), Mapping) for part in _PARTS):
        raise ValueError(
            f"{name} must be a Result or a Trace, got {short(run)}; "
            "pass what specviz.generate returned"
        )


def check_runs(runs: object, name: str = "runs") -> None:
    """Raise ValueError unless `runs` is a list of one run or more, all recorded."""
    if not is_list(runs):
        raise ValueError(f"{name} must be a list, got {short(runs)}; pass a list, even of one run")
    for i, run in enumerate(runs):
        check_recorded(run, f"{name}[{i}]")
