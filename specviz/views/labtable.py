"""The table over the runs of `lab`.

Contract: results go in, HTML comes out. Not known here: the form.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from specviz import metrics

_SUMMARY = (
    "strategy",
    "new_tokens",
    "rounds",
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "full_acceptance_share",
    "discarded_tokens",
    "tokens_per_s",
)
_TABLE_STYLE = (
    "<style>.specviz-lab :is(td, th) { padding: 3px 10px; text-align: right; }"
    ".specviz-lab :is(td, th):first-child { text-align: left; }</style>"
)


def table(results: Mapping[str, Any]) -> str:
    """Return summaries and acceptance by draft position as HTML, a line for each run."""
    lines = []
    for name, result in results.items():
        acceptance = metrics.acceptance(result)
        shares = zip(acceptance["position"], acceptance["acceptance"], strict=True)
        by_position = {f"accepted at {position}": share for position, share in shares}
        lines.append(result.summary[list(_SUMMARY)].assign(strategy=name, **by_position))
    joined = pd.concat(lines)
    joined.columns = [column.replace("_", " ") for column in joined.columns]
    shown = joined.to_html(
        index=False, float_format="{:.2f}".format, na_rep="", border=0, classes="specviz-lab"
    )
    return _TABLE_STYLE + shown
