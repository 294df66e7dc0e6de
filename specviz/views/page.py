"""The frame of the pages of tables that specviz writes: style, light and dark, and the policy.

Contract: markup goes in, a page that loads nothing comes out. The caller escapes what the markup
shows. The content security policy is that of every page: inline script and style, and no
request.
"""

import html

from specviz.views.policy import POLICY

_STYLE = """
:root {
  color-scheme: light dark;
  --jp-content-font-color1: #1d2430; --jp-content-font-color2: #5a6372;
  --line: #c9d0da; --page: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --jp-content-font-color1: #e8ecf3; --jp-content-font-color2: #9aa4b5;
    --line: #39424f; --page: #0d1117;
  }
}
body {
  background: var(--page); color: var(--jp-content-font-color1);
  font: 15px/1.5 Inter, "Segoe UI", Arial, "DejaVu Sans", sans-serif;
  margin: 0 auto; max-width: 1280px; padding: 16px 24px 64px;
}
h1 { font-size: 24px }
h2 { font-size: 18px; margin-top: 40px; border-top: 1px solid var(--line); padding-top: 24px }
p { max-width: 75ch }
.quiet { color: var(--jp-content-font-color2) }
.scroll { overflow-x: auto }
table {
  border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; margin: 12px 0;
}
th, td {
  border-bottom: 1px solid var(--line); padding: 4px 7px; text-align: right; white-space: nowrap;
}
tbody + tbody tr:first-child td { border-top: 2px solid var(--line) }
th {
  color: var(--jp-content-font-color2); font-weight: 600; white-space: normal;
  vertical-align: bottom;
}
.text { text-align: left }
.why { width: 17em; white-space: normal }
"""


def page(title: str, body: str, scripts: str = "") -> str:
    """Return a page.

    Args:
        title: plain text, which heads it.
        body: markup.
        scripts: elements behind the body's.
    """
    shown = html.escape(title)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{shown}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{shown}</h1>
{body}
</main>
{scripts}
</body>
</html>
"""
