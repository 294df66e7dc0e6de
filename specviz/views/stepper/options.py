"""Which options of a strategy are worth showing.

Contract: options in, those that differ from their usual values out.
"""

from typing import Any

# The usual values of a strategy's options, which are not shown. None and, for options that are
# not named here, False are not shown either.
_USUAL = {
    "refill": True,
    "bonus": True,
    "from_round": 0,
    "window": 32,
    "fallback": "realign",
    "max_wait": 8,
    "group_by": "length",
    "positions": "token",
    "skip_unpadding": True,
    "ones_mask": True,
    "draft_bonus": True,
}


def unusual_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a strategy that differ from their usual values."""
    return {
        name: value
        for name, value in options.items()
        if value is not None and value != _USUAL.get(name, False)
    }
