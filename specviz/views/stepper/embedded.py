"""A page of the step-through inside a notebook's output, which needs no kernel to stay alive.

Contract: HTML goes in; what IPython displays comes out. The frame has no origin: its page can run
its own script, and can reach neither the notebook nor the network. Not known here: films.
"""

import html

from specviz.util.validate import is_real, require_int, short

_HEIGHTS = (200, 4000)  # CSS px


class Embedded:
    """Made by `StepThrough.embed`."""

    def __init__(self, page: str, words: str, height: int, limit_mb: float) -> None:
        """Check the size.

        words: what the page shows.
        """
        low, high = _HEIGHTS
        require_int("height", height, low, maximum=high)
        if not is_real(limit_mb) or not limit_mb > 0:
            raise ValueError(
                f"limit_mb must be a number above 0, got {short(limit_mb)}; pass for example 1"
            )
        self._words = words
        self._frame = (
            f'<iframe title="{html.escape(words)}" sandbox="allow-scripts" '
            f'style="width: 100%; height: {height}px; border: 0" '
            f'srcdoc="{html.escape(page)}"></iframe>'
        )
        size_mb = len(self._frame.encode()) / 1e6
        if size_mb > limit_mb:
            raise ValueError(
                f"limit_mb={limit_mb:g} is less than the {size_mb:.1f} MB of this page; record "
                "fewer prompts or tokens, pass a larger limit_mb, or use export_html"
            )

    def __repr__(self) -> str:
        return self._words

    def _repr_html_(self) -> str:
        return self._frame
