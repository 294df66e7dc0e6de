"""The step-through outside a notebook: one self-contained HTML page, and figures as SVG and PNG.

Contract: films come as the widget keeps them (gzipped JSON). A page loads nothing, and its content security policy would stop it if it
tried: one style, one script, both named by their hashes, and data in base64, in which nothing can end a block. Figures are drawn by the
same script in a browser without a window (see `browser`). Files are written beside their place and renamed.
"""

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from specviz.util.files import write as write
from specviz.views.stepper.assets import FIGURE, PAGE, script, style
from specviz.views.stepper.browser import rendered

THEMES = ("auto", "light", "dark")
_ERROR = "error: "


def page(title: str, films: Sequence[bytes], settings: Mapping[str, Any]) -> str:
    """The interactive page. settings: step, row, theme."""
    return _document(
        title, script(PAGE), {"settings": json.dumps(settings).encode(), **_named(films)}
    )


def figure(films: Sequence[bytes], settings: Mapping[str, Any]) -> bytes:
    """The picture of one step. settings: format ("png" or "svg"), step, row, theme, width (CSS px), scale (of a PNG).

    Raises OSError: no browser, or it cannot draw a picture of that size; the message says what to do.
    """
    films = [
        gzip.decompress(film) for film in films
    ]  # figures are drawn while the page loads, which cannot wait for a stream
    document = _document(
        "figure", script(FIGURE), {"settings": json.dumps(settings).encode(), **_named(films)}
    )
    said = rendered(document, "figure", scale=settings["scale"])
    if said.startswith(_ERROR):
        raise OSError(f"the figure cannot be drawn: {said.removeprefix(_ERROR)}")
    return base64.b64decode(said)


def _named(films: Sequence[bytes]) -> dict[str, bytes]:
    return dict(zip(("film", "other"), films, strict=False))


def _document(title: str, code: str, blocks: Mapping[str, bytes]) -> str:
    """code and the style must hold no end tag of their own; a test keeps them so."""
    look = style()
    policy = f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(look)}'; base-uri 'none'"
    data = "\n".join(_block(name, content) for name, content in blocks.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{look}</style>
</head>
<body class="specviz-body">
<main><h1>{html.escape(title)}</h1></main>
{data}
<script type="module">{code}</script>
</body>
</html>
"""


def _block(name: str, content: bytes) -> str:
    return f'<script type="application/octet-stream" id="{name}">{base64.b64encode(content).decode()}</script>'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
