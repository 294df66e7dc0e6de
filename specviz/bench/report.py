"""The report of a benchmark: one HTML page with charts, tables, conditions, and why cells failed.

The page loads nothing. Names, errors and devices are shown letter for letter, whatever they hold.
"""

import html
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from plotly.offline import get_plotlyjs

from specviz.bench.charts import ratio_chart, speed_chart
from specviz.bench.equal_work import BROKEN, by_line, comparisons, summary
from specviz.bench.table import VERSIONS, failures, names, sections
from specviz.util.files import make_folder, write
from specviz.views.page import page

_DRAW = """
for (const block of document.querySelectorAll('script[type="application/json"]')) {
  const figure = JSON.parse(block.textContent);
  const place = document.getElementById(block.dataset.place);
  const config = {displayModeBar: false, displaylogo: false, staticPlot: false};
  Plotly.newPlot(place, figure.data, figure.layout, config);
}
"""
# Column: its title, and how a value is written.
_COLUMNS = {
    "batch_size": ("B", ""),
    "name": ("method", ""),
    "num_draft_tokens": ("K", ""),
    "tokens_per_s": ("tokens/s", ".1f"),
    "range": ("lowest – highest", ""),
    "ratio_to_autoregressive": ("to autoregressive", ".2f"),
    "ratio_to_hf_assisted": ("to HF assisted, B = 1", ".2f"),
    "exact_match": ("exact match", ".1%"),
    "near_ties": ("near ties", ".0f"),
    "mean_acceptance_length": ("mean acceptance length", ".2f"),
    "rounds": ("rounds", ".0f"),
    "round_ms": ("ms a round", ".2f"),
    "draft_ms": ("of that, drafting, ms", ".2f"),
    "sync_share": ("of that, synchronise", ".1%"),
    "verified_a_round": ("drafts verified a row and round", ".2f"),
    "in_flight": ("requests in flight", ".0f"),
    "memory_mb": ("peak memory, MB", ".1f"),
    "training_s": ("training of the drafter, s", ".0f"),
    "recording": ("recording takes", ".1%"),
    "created": ("date", ".10"),
}
_HOW = (
    "Speeds are medians of interleaved runs: new tokens over the seconds of the whole call, "
    "without recording, after a warm-up. Ratios are medians of the ratios within a repetition. "
    "A cell has a speed if every text equals what the target writes for that prompt alone, or "
    "differs at a near tie that rounding explains (exact match below 100 %). Cells without a "
    "speed are listed below with the reason. Mean acceptance length is 1 + accepted drafts a "
    "round."
)


def save_report(table: pd.DataFrame, conditions: Mapping[str, object], path: Path) -> Path:
    """Write the report of a benchmark's table and conditions; return the path.

    Raises:
        WriteError: the file cannot be written.
    """
    make_folder(path.parent)
    return write(path, report(table, conditions).encode())


def report(table: pd.DataFrame, conditions: Mapping[str, object]) -> str:
    """Return the page."""
    shown = [f"{name.replace('_', ' ')} {_plain(value)}" for name, value in conditions.items()]
    body = [f"<p>{_HOW}</p>", _quiet(", ".join(shown))]
    blocks: list[str] = []
    for heading, part in sections(table):
        body.append(f"<h2>{html.escape(heading)}</h2>")
        for draw in (speed_chart, ratio_chart):
            try:
                chart = draw(part).to_json().replace("<", "\\u003c")
            except ValueError:  # nothing to draw: no speeds, or only one batch size
                continue
            place = f"chart-{len(blocks)}"
            kind = f'type="application/json" data-place="{place}"'
            blocks.append(f"<script {kind}>{chart}</script>")
            body.append(f'<div class="scroll"><div id="{place}"></div></div>')
        body += [_table(part), *_equal_work(part)]
        versions = [
            f"{name} {_plain(part[name].unique().tolist())}"
            for name in ("prompts", "threads", *VERSIONS)
        ]
        body.append(_quiet(", ".join(versions)))
    failed = failures(table)
    if failed:
        items = "".join(f"<li>{html.escape(text)}</li>" for text in failed)
        body.append(f"<h2>Cells without a speed</h2>\n<ul>{items}</ul>")
    scripts = f"{''.join(blocks)}\n<script>{get_plotlyjs()}</script>\n<script>{_DRAW}</script>"
    return page("specviz bench", "\n".join(body), scripts)


def _quiet(text: str) -> str:
    return f'<p class="quiet">{html.escape(text)}</p>'


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return " / ".join(map(str, value)) if isinstance(value, list) else str(value)


def _equal_work(part: pd.DataFrame) -> list[str]:
    """Say which comparisons are not at equal work, with an example of each line."""
    found = comparisons(part)
    if BROKEN not in set(found["state"]):
        return []
    broken = by_line(found).query("broken > 0")
    examples = [f"{each.line}, {each.example}" for each in broken.itertuples()]
    return [_quiet(text) for text in (f"{summary(found)}. For example:", *examples)]


def _table(part: pd.DataFrame) -> str:
    shown = part.assign(name=names(part)).sort_values("batch_size", kind="stable")
    shown["range"] = [
        f"{e.tokens_per_s_low:.1f} – {e.tokens_per_s_high:.1f}" if e.repetitions else ""
        for e in shown.itertuples()
    ]
    if "recorded_tokens_per_s" in shown:
        shown["recording"] = 1 - shown["recorded_tokens_per_s"] / shown["tokens_per_s"]
    columns = [name for name in _COLUMNS if name in shown]
    head = "".join(_cell("th", name, _COLUMNS[name][0]) for name in columns)
    bodies = []
    for _, entries in shown.groupby("batch_size", sort=False):
        rows = []
        for entry in entries.to_dict("records"):
            cells = [_cell("td", name, _written(name, entry[name])) for name in columns]
            rows.append(f"<tr>{''.join(cells)}</tr>")
        bodies.append("<tbody>" + "\n".join(rows) + "</tbody>")
    table = f"<table><thead><tr>{head}</tr></thead>\n{''.join(bodies)}</table>"
    return f'<div class="scroll">{table}</div>'


def _cell(tag: str, name: str, text: str) -> str:
    kind = ' class="text"' if name in ("name", "created") else ""
    return f"<{tag}{kind}>{html.escape(text)}</{tag}>"


def _written(name: str, value: object) -> str:
    if pd.isna(value):
        return "failed" if name == "tokens_per_s" else ""
    return format(value, _COLUMNS[name][1])
