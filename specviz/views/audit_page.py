"""The report of an audit as one HTML page: verdict, totals, a picture of the gaps, divergences.

The page loads nothing and runs no script. Prompts, texts and names come from files that anybody may
have written: they are escaped, and shown with invisible characters spelled out.
"""

import html
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from specviz.checks.audit.report import Audit
from specviz.util.files import make_folder, write
from specviz.util.text import visible
from specviz.util.validate import require_kind, require_path
from specviz.views.audit_gaps import gaps_picture
from specviz.views.page import page

MOST_ROWS = 500  # of the table
_MOST_LETTERS = 160  # of a text in a cell
_COLUMNS = {
    "verdict": "verdict",
    "first_divergence": "first divergence",
    "gap": "gap",
    "reference_gap": "reference's gap",
    "candidate_gap": "candidate's gap",
    "later_gap": "later gap",
    "measured_from": "measured from",
}
_WORDS = ("verdict", "measured from", "where the texts part")  # heads of columns of words


def save_audit(audit: Audit, path: str | os.PathLike[str]) -> Path:
    """Write the page of an audit; return its path.

    Raises:
        ValueError: `audit` is not a report of `specviz.audit`, or `path` cannot be a path.
        WriteError: the file cannot be written.
    """
    require_kind("audit", audit, Audit, "pass what specviz.audit returned")
    place = require_path("path", path)
    make_folder(place.parent)
    return write(place, audit_page(audit).encode(errors="replace"))


def audit_page(audit: Audit) -> str:
    """Return the page. Raises ValueError if `audit` is not a report of `specviz.audit`."""
    require_kind("audit", audit, Audit, "pass what specviz.audit returned")
    parts = [
        f"<p><strong>{_text(audit.verdict)}</strong></p>",
        f'<p class="quiet">{_text(_said(audit.conditions))}</p>',
        _totals(audit.totals),
    ]
    if audit.control is not None:
        parts.append(f"<p>{_text(audit.control_sentence)}</p>")
    picture = gaps_picture(audit)
    if picture:
        parts.append(f"<h2>Gaps against the noise</h2>\n{picture}")
    parts.append(_divergences(audit.prompts))
    if audit.notes:
        items = "".join(f"<li>{_text(note)}</li>" for note in audit.notes)
        parts.append(f"<h2>Notes</h2>\n<ul>{items}</ul>")
    return page("specviz audit", "\n".join(parts))


def _totals(totals: pd.DataFrame) -> str:
    rows = []
    for verdict, entry in totals.iterrows():
        cells = [f'<td class="text">{_text(verdict)}</td>', f"<td>{entry['count']:.0f}</td>"]
        cells.append(f"<td>{entry['total']:.0f}</td>")
        if entry["total"]:
            interval = f"{entry['low']:.1%} – {entry['high']:.1%}"
            cells += [f"<td>{entry['share']:.1%}</td>", f"<td>{interval}</td>"]
        else:
            cells += ["<td></td>", "<td></td>"]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = ("verdict", "count", "of", "share", "95 % interval (Wilson)")
    return _table(heads, rows)


def _divergences(prompts: pd.DataFrame) -> str:
    shown = prompts[prompts["verdict"] != "equal"]
    if shown.empty:
        return ""
    rows = []
    for prompt, entry in shown.head(MOST_ROWS).iterrows():
        cells = [f"<td>{prompt}</td>"]
        for name in _COLUMNS:
            kind = ' class="text"' if _COLUMNS[name] in _WORDS else ""
            why = ""
            if name == "verdict" and entry["reason"]:
                why = f'<div class="quiet why">{_text(entry["reason"])}</div>'
            cells.append(f"<td{kind}>{_text(_number(entry[name]))}{why}</td>")
        cells.append(_around(entry))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = ("prompt", *_COLUMNS.values(), "where the texts part")
    left = len(shown) - MOST_ROWS
    more = f"<p>{left} more are in the report's frame().</p>" if left > 0 else ""
    return f"<h2>Texts that differ</h2>\n{_table(heads, rows)}{more}"


def _around(entry: "pd.Series[Any]") -> str:
    """Return a cell: prompt and text before the divergence, and how each side goes on."""
    before = _cut(f"{entry['prompt_text']}{entry['before']}", from_end=True)
    lines = [f'<span class="quiet">… {_text(before)}</span>']
    for side in ("reference", "candidate"):
        lines.append(f"{side}: {_text(_cut(str(entry[f'{side}_text'])))}")
    return f'<td class="text">{"<br>".join(lines)}</td>'


def _cut(text: str, from_end: bool = False) -> str:
    if len(text) > _MOST_LETTERS:
        text = text[-_MOST_LETTERS:] if from_end else text[:_MOST_LETTERS] + "…"
    return visible(text) if text else ""


def _table(heads: tuple[str, ...], rows: list[str]) -> str:
    cells = []
    for each in heads:
        kind = ' class="text"' if each in _WORDS else ""
        cells.append(f"<th{kind}>{_text(each)}</th>")
    head = "".join(cells)
    body = "\n".join(rows)
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _number(value: Any) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _said(conditions: Mapping[str, Any]) -> str:
    parts = []
    for name, value in conditions.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {each}" for key, each in value.items())
        elif isinstance(value, list):
            value = " / ".join(map(str, value))
        if value is not None:
            parts.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(parts)


def _text(value: object) -> str:
    return html.escape(str(value))
