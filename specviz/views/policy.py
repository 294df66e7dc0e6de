"""The content security policy of every page that specviz writes.

A browser that keeps to it runs the page's own script and style and loads nothing, whatever the page
would ask for.
"""

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'"
)
