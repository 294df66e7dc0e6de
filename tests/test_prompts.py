"""Prompts from JSON and text files, chat templates, and the errors for files that do not fit."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import check_refusal, generate
from test_pair import WORDS, llama, make_tokenizer

import specviz as sv
from specviz.prompts import spread

TEMPLATE = (
    "{% for message in messages %}w0 {{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %} w1{% endif %}"
)


def write(folder: Path, *lines: str | bytes | dict[str, Any]) -> Path:
    """Write a file of these lines: text, bytes as they are, or JSON."""
    encoded = []
    for line in lines:
        if isinstance(line, dict):
            line = json.dumps(line, ensure_ascii=False)
        encoded.append(line.encode() if isinstance(line, str) else line)
    path = folder / "prompts.txt"
    path.write_bytes(b"\n".join(encoded))
    return path


def test_jsonl_has_a_prompt_in_each_object(tmp_path):
    objects = {"text": "One\u2028two\n", "id": 3}, {"text": " three", "prompt": "other"}
    path = write(tmp_path, objects[0], "", objects[1], "  ")
    assert sv.load_prompts("jsonl", path) == ["One\u2028two\n", " three"]
    assert sv.load_prompts("jsonl", str(path), limit=1) == ["One\u2028two\n"]
    path = write(tmp_path, {"prompt": "a"}, {"prompt": "b"})
    assert sv.load_prompts("jsonl", path, field="prompt") == ["a", "b"]


def test_text_has_a_prompt_in_each_line(tmp_path):
    """Blank lines are skipped and indentation is kept. Byte order mark and \\r are removed."""
    path = write(tmp_path, b"\xef\xbb\xbfdef add(a, b):\r", "", "    return \u2028", " \t", "grün")
    assert sv.load_prompts("text", path) == ["def add(a, b):", "    return \u2028", "grün"]
    assert sv.load_prompts("text", path, limit=2) == ["def add(a, b):", "    return \u2028"]


def test_a_byte_order_mark_before_json_is_removed(tmp_path):
    assert sv.load_prompts("jsonl", write(tmp_path, b'\xef\xbb\xbf{"text": "a"}')) == ["a"]


def asked(*texts: str) -> list[dict[str, Any]]:
    roles = ["user"] if len(texts) == 1 else ["system", "user"]
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]


PARTS = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


def batch(**body: Any) -> dict[str, Any]:
    return {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": body}


def human(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"id": "a_0", "conversations": [{"from": who, "value": said} for who, said in turns]}


@pytest.mark.parametrize(
    ("items", "field", "prompts"),
    [
        ([human(("human", "a\u2028"), ("gpt", "c")), human(("gpt", "d"))], "text", ["a\u2028"]),
        ([human(("user", "a"))], "conversations", ["a"]),
        ([batch(messages=asked("a")), human()], "text", ["a"]),
        ([batch(prompt="a"), batch(messages=PARTS)], "prompt", ["a", "a"]),
        ([{"messages": asked("a")}, {"messages": asked("b")}], "messages", ["a", "b"]),
        ([{"question_id": 1, "category": "math", "turns": ["a", "b"]}], "prompt", ["a"]),
    ],
)
def test_what_other_tools_keep_prompts_in(tmp_path, items, field, prompts):
    path = write(tmp_path, *items)
    assert sv.load_prompts("jsonl", path, field=field) == prompts
    path.write_text(json.dumps(items, indent=1))
    assert sv.load_prompts("jsonl", path, field=field) == prompts


BAD_LINES = [
    ("jsonl", "{", "is not JSON; write one JSON object a line"),
    ("jsonl", b'{"text": "\xff"}', "is not UTF-8; save the file"),
    ("jsonl", "[" * 100_000, "is not JSON"),
    ("jsonl", "[]", "has no text under 'text', but no keys"),
    ("jsonl", "{}", "has no text under 'text', but no keys"),
    (
        "jsonl",
        {"prompt": "a", "id\n": 1},
        r"has no text under 'text', but 'prompt', 'id\n'; name the key",
    ),
    ("jsonl", {"text": 3}, "has no text under 'text', but 3; name the key"),
    ("jsonl", {"text": ""}, "has no text under 'text', but ''"),
    ("jsonl", {"messages": []}, "has no text under 'text', but 'messages'"),
    ("jsonl", {"body": {"prompt": [1, 2]}, "url": "/v1/completions"}, "has no text under 'text'"),
    (
        "jsonl",
        {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]},
        "is a chat (system, user) that is not one text of a user; pass chat_template=True",
    ),
    ("jsonl", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "is a chat"),
    ("text", b"gr\xfcn", "is not UTF-8; save the file"),
    ("spec_bench", "[" * 100_000, "is not JSON"),
    ("spec_bench", b'{"category": "a", "turns": ["\xff"]}', "is not UTF-8; save the file"),
    *(
        ("spec_bench", line, "is not a SpecBench question")
        for line in (
            "[]",
            '"text"',
            {"category": "a"},
            {"category": "a", "turns": []},
            {"category": 1, "turns": ["x"]},
            {"category": "a", "turns": [3]},
            {"category": "a", "turns": "text"},
        )
    ),
]


@pytest.mark.parametrize(("source", "line", "reason"), BAD_LINES)
def test_the_error_names_a_line_without_a_prompt(source, line, reason, tmp_path):
    path = write(tmp_path, {"text": "a", "category": "b", "turns": ["c"]}, "", line)
    check_refusal(lambda: sv.load_prompts(source, path), f"line 3 of {path} {reason}")


@pytest.mark.parametrize("source", ["spec_bench", "jsonl", "text"])
def test_a_file_without_a_prompt(source, tmp_path):
    path = write(tmp_path, "", " ")
    check_refusal(lambda: sv.load_prompts(source, path), f"path={str(path)!r} holds no prompt")
    for other in (tmp_path, tmp_path / "missing.jsonl"):
        begins = f"path={str(other)!r} is not a file"
        call = partial(sv.load_prompts, source, other)
        check_refusal(call, begins, error=FileNotFoundError)
    check_refusal(
        lambda: sv.load_prompts(source),
        f"path must be a str or a Path with source={source!r}, got None",
    )


REFUSED = [
    (
        lambda: sv.load_prompts("jsonl", __file__, categories=["math"]),
        "categories must be None with source='jsonl', got ['math']",
    ),
    (
        lambda: sv.load_prompts("text", __file__, field="prompt"),
        "field must be a str, and only with source='jsonl', got 'prompt' with source='text'",
    ),
    (lambda: sv.load_prompts(field="prompt"), "field must be a str, and only with "),
    (
        lambda: sv.load_prompts("jsonl", __file__, field=3),
        "field must be a str, and only with source='jsonl', got 3 ",
    ),
    (lambda: sv.load_prompts(chat_template=True), "tokenizer=NoneType has no chat template"),
    (
        lambda: sv.load_prompts(chat_template=True, tokenizer=make_tokenizer(WORDS)),
        "tokenizer=TokenizersBackend has no chat template",
    ),
    (
        lambda: sv.load_prompts(chat_template=True, tokenizer=sv.Pair(llama(), llama())),
        "tokenizer=Pair has no chat template",
    ),
    (
        lambda: sv.load_prompts(chat_template=make_tokenizer(WORDS)),
        "chat_template must be a bool, got TokenizersBackend",
    ),
    (
        lambda: sv.load_prompts(tokenizer=make_tokenizer(WORDS)),
        "tokenizer is given, but chat_template=False",
    ),
]


@pytest.mark.parametrize(("call", "begins"), REFUSED, ids=[begins for _, begins in REFUSED])
def test_arguments_that_do_not_fit(call, begins):
    check_refusal(call, begins)


def test_a_chat_template_gives_token_ids(tmp_path):
    """Token ids, because this tokenizer, like most, would add its first token a second time."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = make_tokenizer(WORDS)
    tokenizer.chat_template = TEMPLATE
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="w0 $A", special_tokens=[("w0", 0)]
    )
    path = write(tmp_path, "w3 w4", "w5")
    prompts = sv.load_prompts("text", path, chat_template=True, tokenizer=tokenizer)
    assert prompts == [[0, 3, 4, 1], [0, 5, 1]]
    assert tokenizer("w0 w5 w1")["input_ids"] == [0, 0, 5, 1]
    pair = sv.Pair(llama(), llama(), tokenizer)
    assert len(generate(pair, prompts, max_new_tokens=2).tokens) == 2
    first = sv.load_prompts("text", path, chat_template=True, tokenizer=tokenizer, limit=1)
    assert first == prompts[:1]
    path = write(tmp_path, {"body": {"messages": asked("w3 ", "w4")}})
    prompts = sv.load_prompts("jsonl", path, chat_template=True, tokenizer=tokenizer)
    assert prompts == [[0, 3, 0, 4, 1]]
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    check_refusal(
        lambda: sv.load_prompts("text", path, chat_template=True, tokenizer=tokenizer),
        f"line 1 of {path}: the tokenizer's chat template fails",
    )


def test_prompts_need_no_torch() -> None:
    """Checked in a fresh interpreter."""
    code = (
        "import sys, specviz; specviz.load_prompts(limit=1); "
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


def test_a_selection_is_spread_over_the_whole() -> None:
    assert spread("abcdefgh", 2) == ["a", "e"]
    assert spread("abcde", 3) == ["a", "b", "d"]
    assert spread(range(480), 24) == list(range(0, 480, 20))
    assert spread(range(480), 479)[-1] == 478
    assert spread("abc", 5) == spread("abc", None) == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"^limit must be an int >= 1, got 0; "):
        spread("abc", 0)
