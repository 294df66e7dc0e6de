"""A picture of an audit's gaps on a logarithmic line, beside what noise explains, as SVG.

Contract: numbers of a report go in, markup comes out; no text of a file is in it. Shape and row
tell the verdicts apart, not colour alone.
"""

import math

import pandas as pd

from specviz.checks.audit.report import UNEXPLAINED, Audit
from specviz.checks.equivalence import NEAR_TIE, UNKNOWN
from specviz.views.theme import BLUE, GREEN, GREY, ORANGE, solid, tint

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 900, 130, 24, 44, 26  # pixels
_INK = "var(--jp-content-font-color1)"
_ROWS = {NEAR_TIE: GREEN, UNEXPLAINED: ORANGE, UNKNOWN: GREY}


def gaps_picture(audit: Audit) -> str:
    """Return the picture of all measured gaps; "" if there is none, or no noise."""
    parted = audit.prompts[audit.prompts["verdict"].isin(list(_ROWS))]
    sizes = parted[["gap", "later_gap"]].max(axis=1)  # the one that decides
    known = parted[sizes.notna()]
    if known.empty or math.isnan(audit.noise):
        return ""
    values = sizes[sizes.notna()].clip(lower=audit.limit / 1e4)
    low = math.floor(math.log10(min(values.min(), audit.limit)) - 0.2)
    high = math.ceil(math.log10(max(values.max(), audit.limit)) + 0.2)
    rows = [verdict for verdict in _ROWS if (known["verdict"] == verdict).any()]
    bottom = _TOP + _ROW * len(rows)

    def x(value: float) -> float:
        share = (math.log10(value) - low) / (high - low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    parts = [*_axis(low, high, bottom, x(audit.limit), audit.limit)]
    for decade in range(low, high + 1):
        parts.append(_label(x(10**decade), bottom + 18, f"{10.0**decade:g}"))
    for number, verdict in enumerate(rows):
        y = _TOP + _ROW * (number + 0.5)
        parts.append(_label(_LEFT - 12, y + 4, verdict, "end"))
        of_row = known[known["verdict"] == verdict]
        for place, prompt in enumerate(of_row.index):
            height = y + (place % 5 - 2) * 6
            words = f"prompt {prompt}: {sizes[prompt]:.3g}"
            parts.append(_mark(verdict, x(values[prompt]), height, words))
    return _svg(parts, bottom + 40, known)


def _axis(low: int, high: int, bottom: float, limit_x: float, limit: float) -> list[str]:
    band = f'fill="{tint(BLUE, 0.15)}"'
    width = limit_x - _LEFT
    return [
        f'<rect x="{_LEFT}" y="{_TOP}" width="{width:.1f}" height="{bottom - _TOP}" {band}/>',
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}" stroke="{_INK}"/>',
        f'<line x1="{limit_x:.1f}" y1="{_TOP}" x2="{limit_x:.1f}" y2="{bottom}" '
        f'stroke="{solid(BLUE)}" stroke-dasharray="5 4"/>',
        _label(limit_x, _TOP - 8, f"noise explains {limit:.3g}"),
    ]


def _mark(verdict: str, x: float, y: float, words: str) -> str:
    """Return a circle, a cross or a square, with words for the pointer."""
    colour = solid(_ROWS[verdict])
    if verdict == UNEXPLAINED:
        path = f"M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10"
        shape = f'<path d="{path}" stroke="{colour}" stroke-width="2.5" fill="none">'
        return f"{shape}<title>{words}</title></path>"
    if verdict == NEAR_TIE:
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}">'
        return f"{shape}<title>{words}</title></circle>"
    shape = f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}">'
    return f"{shape}<title>{words}</title></rect>"


def _label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    style = f'fill="{_INK}" font-size="12" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{text}</text>'


def _svg(parts: list[str], height: float, known: pd.DataFrame) -> str:
    words = (
        f"The gaps of {len(known)} divergences on a logarithmic axis. Noise explains what lies in "
        "the shaded part."
    )
    size = f'width="{_WIDTH}" height="{height:.0f}" viewBox="0 0 {_WIDTH} {height:.0f}"'
    picture = f'<svg {size} role="img" aria-label="{words}">{"".join(parts)}</svg>'
    caption = (
        "Each mark is a text that diverges, at its gap or, where that is larger, the gap of a "
        "later token: how far a token lies below the target's best one, in natural units of "
        "log-probability."
    )
    return f'<div class="scroll">{picture}</div><p class="quiet">{caption}</p>'
