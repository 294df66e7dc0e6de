"""Token text as it is shown: nothing hidden, nothing interpreted, cut to a width."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specviz.util.text import escape, shorten, visible


@given(st.text())
def test_shown_text_hides_nothing(text):
    shown = visible(text)
    assert not re.search(r"\s", shown)
    assert all(character.isprintable() for character in shown)
    assert not re.search(r"[<>$]", escape(shown))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" self", "·self"),
        ("\n    x", "↵·⁴x"),
        ("a b  c", "a·b·²c"),
        ("\t\r", "⇥␍"),
        ("\x07\u200b\ud800", "\\x07\\u200b\\ud800"),
        ("\u0301", "◌\u0301"),
        (" " * 12, "·¹²"),
        ("", "∅"),
    ],
)
def test_visible(text, shown):
    assert visible(text) == shown


@given(st.text(), st.integers(1, 8))
def test_shortened_text_fits(text, columns):
    short = shorten(text, columns)
    assert len(short) <= columns
    assert short in (text, short[:-1] + "…")


def test_wide_letters_count_twice():
    assert shorten("汉字汉字", 5) == "汉字…"
    assert shorten("汉字", 4) == "汉字"
