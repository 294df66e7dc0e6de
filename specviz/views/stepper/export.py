"""The step-through outside a notebook: one self-contained HTML page, and figures as SVG and PNG.

Contract: films come as the widget keeps them (gzipped JSON). A page loads nothing: it has one
style, one script, and data in base64, in which nothing can end a block. Figures are drawn by the
same script in a browser without a window (see `browser`). Files are written beside their place and
renamed.
"""

import base64
import gzip
import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from specviz.util.files import write as write
from specviz.views.policy import POLICY
from specviz.views.stepper.assets import script, style
from specviz.views.stepper.browser import rendered

_ERROR = "error: "


def page(title: str, films: Sequence[bytes], settings: Mapping[str, Any]) -> str:
    """Return the interactive page. settings: step, row, theme."""
    # A widget's film is packed in a hurry; a page is written once, and smaller by a tenth this way.
    smaller = [gzip.compress(gzip.decompress(film), compresslevel=6, mtime=0) for film in films]
    return _document(title, "page", smaller, settings)


def figure(films: Sequence[bytes], settings: Mapping[str, Any]) -> bytes:
    """Return the picture of one step.

    Args:
        films: of one run or two.
        settings: format ("png" or "svg"), step, row, theme, width (CSS px), scale (of a PNG).

    Raises:
        OSError: there is no browser, or it cannot draw a picture of that size; the message says
            what to do.
    """
    # A figure is drawn while the page loads, which cannot wait for a stream to be decompressed.
    plain = [gzip.decompress(film) for film in films]
    document = _document("figure", "figure", plain, settings)
    text = rendered(document, "figure", scale=settings["scale"])
    if text.startswith(_ERROR):
        raise OSError(f"the figure cannot be drawn: {text.removeprefix(_ERROR)}")
    return base64.b64decode(text)


def _document(title: str, kind: str, films: Sequence[bytes], settings: Mapping[str, Any]) -> str:
    """Return a page of this kind. No script or style may hold an end tag; a test enforces that."""
    blocks = [_block("settings", json.dumps(settings).encode())]
    for name, film in zip(("film", "other"), films, strict=False):  # one film, or two
        blocks.append(_block(name, film))
    data = "\n".join(blocks)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{style()}</style>
</head>
<body class="specviz-body">
<main data-specviz="{kind}"><h1>{html.escape(title)}</h1></main>
{data}
<script type="module">{script()}</script>
</body>
</html>
"""


def _block(name: str, content: bytes) -> str:
    encoded = base64.b64encode(content).decode()
    return f'<script type="application/octet-stream" id="{name}">{encoded}</script>'
