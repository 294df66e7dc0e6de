"""The columns of a record's file.

Contract: an open safetensors file goes in, arrays come out, by table. Not known here: what they
mean.
"""

from typing import Any

import numpy as np

from specviz.record.schema import COLUMNS, Array, Table, TraceError, named

_FILE_DTYPES = ("U8", "I32", "I64", "F32")


def stored_column(file: Any, name: str) -> Array:
    """Return one of an open file. Raise TraceError if it is none that a record may have."""
    dtype = file.get_slice(name).get_dtype()
    if dtype not in _FILE_DTYPES:
        raise TraceError(
            f"{named(name)} is stored as {named(dtype)}, which no column of a trace may be; "
            "record the run again"
        )
    try:
        return np.asarray(file.get_tensor(name))
    except (ValueError, OverflowError) as error:  # sizes that no array can have
        raise TraceError(
            f"{named(name)} has a shape that no column can have; record the run again"
        ) from error


def by_table(columns: dict[str, Array]) -> dict[str, Table]:
    """Return them by table. Raise TraceError for a table that no record has."""
    found: dict[str, Table] = {name: {} for name in COLUMNS}
    for name, values in columns.items():
        table, _, column = name.partition(".")
        if table not in found:
            raise TraceError(f"columns are unknown: {named(name)}; record the run again")
        found[table][column] = values
    return found
