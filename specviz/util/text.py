"""Make token text safe to show: white space visible, control characters spelled out, markup
escaped. Write times with their unit. Wrap long lines.

Contract: plain strings in, plain strings out. Tokens come from a model or from a file, so nothing
in them is trusted. Not known here: colours, charts and tokenizers.
"""

import re
import textwrap
import unicodedata

# A chart would read two dollar signs as a formula.
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})
_SIGNS = {"\n": "↵", "\t": "⇥", "\r": "␍", " ": "·"}
_PIECES = re.compile(r" {2,}|.", re.DOTALL)
SECONDS_FROM = 9999.5  # ms that are written in seconds
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def escape(text: str) -> str:
    """Return `text` escaped for a chart, which then shows it letter for letter."""
    return text.translate(_MARKUP)


def visible(text: str) -> str:
    """Return `text` with invisible characters spelled out.

    ↵ ⇥ ␍ stand for line ends and tabs, · for a space, ·⁴ for four spaces, \\x07 for a bell, ∅ for
    an empty text.
    """
    found = ""
    for match in _PIECES.finditer(text):
        piece = match[0]
        spaces = len(piece)
        found += "·" + str(spaces).translate(_SUPERSCRIPTS) if spaces > 1 else _shown(piece)
    return found or "∅"


def harmless(text: str) -> str:
    """Return `text` for a terminal.

    Control and format characters and lone surrogates are spelled out. Line ends and tabs stay.
    """
    found = ""
    for letter in text:
        is_safe = letter in "\n\t" or unicodedata.category(letter)[0] != "C"
        found += letter if is_safe else _shown(letter)
    return found


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shorten(text: str, columns: int) -> str:
    """Return `text` cut to this many columns of a fixed-width font; a cut text ends in ….

    East Asian wide letters take two columns.
    """
    if sum(map(_columns, text)) <= columns:
        return text
    used = 1  # for the …
    kept = ""
    for letter in text:
        used += _columns(letter)
        if used > columns:
            break
        kept += letter
    return kept + "…"


def wrapped(text: object, columns: int = 100) -> str:
    """Return `str(text)` with no line longer than `columns`; what is wrapped goes on indented.

    Lines are broken at spaces only, so a longer word stays whole, and so does code in brackets.
    """
    lines = []
    for line in str(text).splitlines():
        margin = line[: len(line) - len(line.lstrip())]
        parts = textwrap.wrap(
            line,
            columns,
            subsequent_indent=margin + "    ",
            replace_whitespace=False,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += parts or [""]
    return "\n".join(lines)


def size(size_bytes: int) -> str:
    """Return bytes in kB, or from 100 kB on in MB."""
    if size_bytes >= 100_000:
        return f"{size_bytes / 1e6:.1f} MB"
    return f"{size_bytes / 1e3:.1f} kB"


def time_words(ms: float, digits: int = 1) -> str:
    """Return a time in ms, or from 10,000 ms on in seconds; digits: decimals of ms."""
    return f"{ms:.{digits}f} ms" if ms < SECONDS_FROM else f"{ms / 1000:.1f} s"


def _columns(letter: str) -> int:
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _shown(letter: str) -> str:
    if letter in _SIGNS:
        return _SIGNS[letter]
    category = unicodedata.category(letter)
    if category.startswith("M"):  # a combining mark needs a base letter
        return "◌" + letter
    if category.startswith(("C", "Z")):
        return f"\\x{ord(letter):02x}" if ord(letter) < 256 else f"\\u{ord(letter):04x}"
    return letter
