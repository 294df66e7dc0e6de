"""Printed text from models, prompts, files and errors.

No escape sequence in it reaches the terminal, and no text makes printing fail.
"""

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import TRACE, changed

import specviz as sv
from specviz.cli.main import main as cli
from specviz.util.text import harmless

ESCAPES = (
    "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202eright to left\u2066 \ud800 \x00 \r\b \u2028 \ufeff"
)


def obeyed(text: str) -> set[str]:
    """Characters that a terminal acts upon, or that cannot be printed."""
    return {
        letter
        for letter in text
        if letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cf", "Cs")
    }


@given(st.text(st.characters(exclude_categories=[])))
def test_harmless_text_is_only_text(text):
    shown = harmless(text)
    assert obeyed(shown) == set()
    shown.encode()
    assert harmless(shown) == shown


def test_what_is_harmless_stays():
    assert harmless("a\n\tb  ÄÖ 中文 ▸─ é") == "a\n\tb  ÄÖ 中文 ▸─ é"
    assert harmless("\x1b[31m\u202e\ud800") == "\\x1b[31m\\u202e\\ud800"


def test_the_command_line_prints_no_escapes_of_a_prompt(capsys):
    prompt = ESCAPES.replace("\ud800", "").replace("\x00", "")
    assert cli(["generate", prompt, "--max-new-tokens", "2", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert obeyed(shown) == set()
    assert "\\x1b[31mred" in shown


def test_the_command_line_tells_of_an_error_without_escapes(capsys, tmp_path):
    path = tmp_path / "\x1b[31mrun\u202e"
    path.write_bytes(b"nothing")
    assert cli(["replay", str(path), "--out", str(tmp_path / "x.html")]) == 2
    said = capsys.readouterr().err
    assert obeyed(said) == set()
    assert "\\x1b[31mrun\\u202e': is not a safetensors file" in said


def test_messages_about_a_hostile_record_carry_no_escapes():
    texts = {str(token): ESCAPES for token in range(100)}
    emitted = TRACE.rows["emitted"].copy()
    emitted[0, 0] = 98
    trace = replace(
        changed("rows", emitted=emitted),
        meta=TRACE.meta | {"token_texts": texts, "strategy": ESCAPES},
    )
    found = sv.check_invariants(trace)
    assert any("98 (" in each.message for each in found)
    for said in (str(found), repr(trace), repr(sv.step_through(trace))):
        assert obeyed(said) == set()
    with pytest.raises(ValueError, match="no rounds") as caught:
        sv.step_through(
            replace(
                trace,
                **{
                    name: {key: values[:0] for key, values in getattr(trace, name).items()}
                    for name in TABLES
                },
            )
        )
    assert obeyed(str(caught.value)) == set()


TABLES = ("rounds", "rows", "feeds", "holes", "moves", "pool")
