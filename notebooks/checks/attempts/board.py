"""The leaderboard of a reader's own attempts: a table in a file that grows.

Contract: one line an attempt. Not known here: decoders and clocks.
"""

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from checks.attempts.speed import Speed
from specviz.util.files import check_writable, make_folder, write
from specviz.util.validate import require_path

COLUMNS = ("date", "milestone", "batch_size", "tokens_per_s", "ratio", "low", "high", "device")


class Board:
    """The attempts in a CSV file, which is made by the first of them.

    Args:
        path: the file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = require_path("path", path)

    def add(self, milestone: int, batch_size: int, speed: Speed, device: str) -> None:
        """Add an attempt. Raises OSError if the file cannot be written."""
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "milestone": milestone,
            "batch_size": batch_size,
            "tokens_per_s": round(speed.tokens_per_s, 1),
            "ratio": round(speed.ratio, 3),
            "low": round(min(speed.ratios), 3),
            "high": round(max(speed.ratios), 3),
            "device": device,
        }
        earlier = self.table().to_dict("records")
        check_writable(self.path)
        make_folder(self.path.parent)
        content = pd.DataFrame([*earlier, line], columns=list(COLUMNS)).to_csv(index=False)
        write(self.path, content.encode())

    def table(self) -> pd.DataFrame:
        """Return all attempts, the oldest first. Raises ValueError if the file is another one."""
        if not self.path.exists():
            return pd.DataFrame(columns=list(COLUMNS))
        try:
            table = pd.read_csv(self.path)
        except (ValueError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{self.path} must be a leaderboard, got a file that cannot be read ({error}); "
                "remove it"
            ) from None
        if list(table.columns) != list(COLUMNS):
            raise ValueError(
                f"{self.path} must be a leaderboard with the columns {list(COLUMNS)}, got "
                f"{list(table.columns)}; pass another path"
            )
        return table
