"""Conversations under budgets: what is read again, and that no text changes."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import check_refusal, make_pair

from specviz.cli import chat as command
from specviz.studies import chat
from specviz.studies.chat import compare_chats

RUN: dict[str, Any] = {"conversations": 2, "batch_size": 1, "max_new_tokens": 5}
RUN |= {"repetitions": 1, "progress": False}
MESSAGES = [[(7 * i + j) % 97 for j in range(4 + i)] for i in range(5)]


@pytest.mark.slow
def test_what_is_kept_is_not_read_again() -> None:
    """The rest of the messages, which does not suffice for a third turn, is left out."""
    table, found = compare_chats(make_pair("llama"), MESSAGES, [100, 1], **RUN)
    assert found["turns"] == 2
    free, prompts, none, whole, least = table.to_dict("records")
    assert (free["keep"], prompts["keep"], none["keep"]) == ("all", "prompt", "none")
    assert free["read_tokens"] < prompts["read_tokens"] < none["read_tokens"]
    assert none["restored_tokens"] == none["kept_mb"] == 0
    for entry in (free, prompts):
        assert entry["read_tokens"] + entry["restored_tokens"] == none["read_tokens"]
    # With a budget that is enough, as without one. With one that no turn fits into, nothing.
    assert whole["read_tokens"] == free["read_tokens"]
    assert whole["percent"] == 100
    assert whole["dropped"] == 0
    assert pd.isna(least["turn_s"])
    measured = table[table["turn_s"].notna()]
    assert measured["same_text"].all()
    assert (
        (measured["low"] <= measured["turn_s"]) & (measured["turn_s"] <= measured["high"])
    ).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"messages": MESSAGES[:3]}, "messages must be enough for two turns of 2 conversations"),
        ({"messages": [[1], [200], [1], [1]]}, "messages["),
        ({"percents": [0]}, "percents"),
        ({"repetitions": 0}, "repetitions"),
        ({"conversations": 0}, "conversations"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    arguments = {"messages": MESSAGES} | RUN | changes
    check_refusal(lambda: compare_chats(make_pair("llama"), **arguments), message)


def test_the_command_says_bundled_prompts_in_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def compare(pair: object, messages: list[str], percents: list[int], **how: Any) -> Any:
        asked.update(how, messages=messages, percents=percents)
        return pd.DataFrame([{"turn_s": 1.0}]), {"device": "cpu"}

    monkeypatch.setattr(chat, "compare_chats", compare)
    monkeypatch.setattr(command, "load_models", lambda options: None)
    from specviz.cli.main import main

    out = tmp_path / "chat.csv"
    given = ["--conversations", "3", "--turns", "2", "--percents", "70", "--out", str(out)]
    assert main(["study", "chat", *given]) == 0
    assert len(asked["messages"]) == 6
    assert [text.startswith("\n\n") for text in asked["messages"]] == [False] * 3 + [True] * 3
    assert (asked["conversations"], asked["percents"]) == (3, [70])
    assert out.exists()
    assert "turn_s" in capsys.readouterr().out
