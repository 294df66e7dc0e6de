"""Token text that can be shown: white space made visible, control characters spelled out, markup made harmless.

Contract: plain strings in, plain strings out. Tokens come from a model or from a file, so nothing in them is trusted. Not
known here: colours, charts and tokenizers.
"""

import re
import unicodedata

_MARKUP = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"}
)  # two dollar signs would start a formula
_SIGNS = {"\n": "↵", "\t": "⇥", "\r": "␍", " ": "·"}
_PIECES = re.compile(r" {2,}|.", re.DOTALL)
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def escape(text: str) -> str:
    """`text` as it has to stand in a chart's string so that it is shown letter for letter."""
    return text.translate(_MARKUP)


def visible(text: str) -> str:
    """`text` with nothing hidden in it: ↵ ⇥ ␍ for line ends and tabs, · for a space, ·⁴ for four, \\x07 for a bell, ∅ for no text."""
    pieces = (piece[0] for piece in _PIECES.finditer(text))
    return (
        "".join(
            "·" + str(len(piece)).translate(_RAISED) if len(piece) > 1 else _shown(piece)
            for piece in pieces
        )
        or "∅"
    )


def harmless(text: str) -> str:
    """`text` for a terminal: as it is, but for control and format characters and lone surrogates, which are spelled out; lines stay."""
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter)[0] != "C" else _shown(letter)
        for letter in text
    )


def shorten(text: str, columns: int) -> str:
    """`text` cut to so many columns of a fixed-width font, the last being … where something was cut; wide letters take two."""
    if sum(map(_columns, text)) <= columns:
        return text
    used, kept = 1, ""
    for letter in text:
        used += _columns(letter)
        if used > columns:
            break
        kept += letter
    return kept + "…"


def _columns(letter: str) -> int:
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _shown(letter: str) -> str:
    if letter in _SIGNS:
        return _SIGNS[letter]
    category = unicodedata.category(letter)
    if category.startswith("M"):  # a combining mark alone needs something to sit on
        return "◌" + letter
    if category.startswith(("C", "Z")):
        return f"\\x{ord(letter):02x}" if ord(letter) < 256 else f"\\u{ord(letter):04x}"
    return letter
