"""Outputs as files, lists and runs, and what cannot be read."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import check_refusal, debug_page, decoded

from specviz.checks.audit.output import Output, from_record
from specviz.checks.audit.reading import read_outputs

RECORD: dict[str, Any] = {
    "prompt": "Hi",
    "prompt_token_ids": [1, 2],
    "token_ids": [3, 4],
    "messages": [{"role": "user", "content": "Hi"}],
    "text": "it's",
    "has_reasoning": True,
    "logprobs": [-0.5, None],
    "top_logprobs": [[[3, -0.5], [9, -1.5]], []],
    "finish_reason": "length",
    "max_tokens": 2,
}


def one(source: Any) -> Output:
    (output,) = read_outputs("reference", source).outputs
    return output


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_the_documented_form_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(RECORD), "", json.dumps(RECORD))
    for line, output in zip((1, 3), read_outputs("reference", path).outputs, strict=True):
        assert output.where == f"line {line} of {path}"
        assert (output.prompt, output.prompt_ids, output.token_ids) == ("Hi", (1, 2), (3, 4))
        assert (output.text, output.has_reasoning) == ("it's", True)
        assert output.messages == (RECORD["messages"][0],)
        assert output.logprobs is not None
        assert output.logprobs[0] == -0.5
        assert math.isnan(output.logprobs[1])
        assert output.candidates == ({3: -0.5, 9: -1.5}, {})
        assert (output.finish_reason, output.budget) == ("length", 2)


@pytest.mark.parametrize(
    ("fields", "reason", "budget"),
    [
        ({"finish_reason": "eos", "max_completion_tokens": 3}, "stop", 3),
        ({"finish_reason": "stop_sequence", "max_new_tokens": 0}, "stop", 0),
        ({"finish_reason": "MAX_TOKENS", "max_tokens": None, "n_predict": 5}, "length", 5),
        ({"finish_reason": "limit", "n_predict": -1}, "length", None),
        ({"finish_reason": "none"}, "", None),
        ({"finish_reason": "content_filter"}, "content_filter", None),
        ({"finish_reason": None}, "", None),
    ],
)
def test_ends_and_budgets_by_any_name(fields: Any, reason: str, budget: int | None) -> None:
    output = from_record("line 1", {"text": "a", **fields})
    assert (output.finish_reason, output.budget) == (reason, budget)


def test_a_pair_may_also_be_an_entry_of_an_object() -> None:
    record = {"tokens": ["it", "'s"], "top_logprobs": [{"it": -0.5, "x": -0.25}, None]}
    output = from_record("line 1", record)
    assert output.candidates == ({"it": -0.5, "x": -0.25}, {})
    assert output.text == "it's"
    assert output.tokens == ("it", "'s")


def test_lists_of_tokens_and_texts() -> None:
    outputs = read_outputs("candidate", [[3, 4], "text", {"text": "more"}]).outputs
    assert [each.tokens for each in outputs] == [(3, 4), None, None]
    assert [each.text for each in outputs] == [None, "text", "more"]
    assert outputs[1].where == "candidate[1]"


def test_runs_bring_prompts_scores_and_shapes() -> None:
    result = decoded("inplace")
    of_result = read_outputs("reference", result)
    assert [each.prompt_ids for each in of_result.outputs] == [tuple(p) for p in result.prompts]
    assert [list(each.token_ids or ()) for each in of_result.outputs] == result.tokens
    assert (of_result.batch_size, of_result.num_draft_tokens) == (4, 4)
    assert of_result.dtype == "float32"
    assert of_result.eos_token_ids == tuple(result.meta["eos_token_ids"])
    assert [each.budget for each in of_result.outputs] == result.budgets
    ends = {"eos": "stop", "budget": "length"}
    assert [each.finish_reason for each in of_result.outputs] == [ends[s] for s in result.status]
    first = of_result.outputs[0]
    assert first.candidates is not None
    # Greedy: what was written is the best candidate.
    assert [max(place, key=place.get) for place in first.candidates] == result.tokens[0]
    of_trace = read_outputs("reference", result.trace)
    for name in ("token_ids", "budget", "finish_reason"):
        read = [[getattr(each, name) for each in of.outputs] for of in (of_trace, of_result)]
        assert read[0] == read[1]


BAD_LINES = [
    ("{", "is not JSON"),
    ("[" * 200_000, "is not JSON"),
    ("17", "must be an output"),
    ("{}", "has no output", "no keys"),
    ('{"prompt": "a", "answer": "b"}', "has no output", "'prompt', 'answer'"),
    ('{"token_ids": [1, -2]}', "token_ids[1] must be a token id", "-2"),
    ('{"token_ids": [true]}', "token_ids[0]"),
    ('{"token_ids": "12"}', "token_ids must be a list"),
    ('{"tokens": [1]}', "tokens[0] must be a text"),
    ('{"text": 1}', "text must be a str"),
    ('{"text": "a", "finish_reason": "abort"}', "is a request that failed"),
    ('{"token_ids": [1], "tokens": ["a", "b"]}', "tokens has 2 entries for 1 tokens"),
    ('{"text": "a", "messages": ["Hi"]}', "messages[0] must be an object", "'Hi'"),
    ('{"text": "a", "max_tokens": "9"}', "max_tokens must be an int", "'9'"),
    ('{"text": "a", "has_reasoning": 1}', "has_reasoning must be true or false"),
    ('{"text": "a", "logprobs": [-1]}', "logprobs has 1 entries for no tokens"),
    ('{"token_ids": [1], "logprobs": [-1, -2]}', "logprobs has 2 entries for 1 tokens"),
    ('{"token_ids": [1], "logprobs": [0.5]}', "logprobs[0] must be a log-probability", "0.5"),
    ('{"token_ids": [1], "top_logprobs": [[1, -2]]}', "top_logprobs[0] must be a list of pairs"),
    ('{"token_ids": [1], "top_logprobs": [7]}', "must be a list of pairs"),
]


@pytest.mark.parametrize(("line", "says", "parts"), [(a, b, c) for a, b, *c in BAD_LINES])
def test_a_damaged_line_is_named(tmp_path: Path, line: str, says: str, parts: list[str]) -> None:
    path = written(tmp_path, json.dumps(RECORD), "", line)
    begins = f"line 3 of {path}"
    check_refusal(lambda: read_outputs("reference", path), begins, says, *parts)


def test_files_that_are_none(tmp_path: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    check_refusal(
        lambda: read_outputs("control", missing), "control=", str(missing), error=FileNotFoundError
    )
    empty = written(tmp_path, "", " ")
    check_refusal(lambda: read_outputs("reference", empty), "reference=", "is empty")
    empty.write_text("[]\n")
    check_refusal(lambda: read_outputs("reference", empty), "reference=", "is empty")
    empty.write_bytes(b'{"text": "\xff"}')
    check_refusal(lambda: read_outputs("reference", empty), "line 1", "not UTF-8")
    check_refusal(lambda: read_outputs("reference", []), "reference is empty")
    check_refusal(lambda: read_outputs("reference", 3), "reference must be a JSONL file", "3")


def test_the_example_of_the_documentation_is_read() -> None:
    text = debug_page("Audit")
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    output = one([json.loads(example)])
    assert output.token_ids == (287, 31, 7)
    assert output.prompt
    assert output.logprobs is not None
    assert output.candidates is not None
    assert output.finish_reason == "length"
    keys = re.findall(r"(?m)^\| `(\w+)` \| [^\n]", text)
    assert set(keys) == {*RECORD, "tokens"}
