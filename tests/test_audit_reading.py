"""Outputs as files, lists, vLLM's and SGLang's answers and runs, and what cannot be read."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import check_refusal, decoded

from specviz.checks.audit.output import KEYS, Output, from_record, to_record
from specviz.checks.audit.printed import read_printed
from specviz.checks.audit.reading import read_outputs, save_outputs

RECORD = {
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
# As print(output) of vLLM shows it.
VLLM = (
    "RequestOutput(request_id=0, prompt='Hi', prompt_token_ids=[1, 2], encoder_prompt=None, "
    "encoder_prompt_token_ids=None, prompt_logprobs=None, outputs=[CompletionOutput(index=0, "
    'text="it\'s", token_ids=[3, 4], routed_experts=None, cumulative_logprob=-1.5, '
    "logprobs=[{3: Logprob(logprob=-0.5, rank=1, decoded_token='it'), 9: Logprob(logprob=-inf, "
    "rank=2, decoded_token='x')}, {4: Logprob(logprob=-1.0, rank=1, decoded_token=\"'s\")}], "
    "finish_reason=length, stop_reason=None)], finished=True, metrics=None, lora_request=None, "
    "num_cached_tokens=0)"
)
SGLANG: dict[str, Any] = {
    "text": "it's",
    "output_ids": [3, 4],
    "meta_info": {
        "id": "a1",
        "finish_reason": {"type": "length", "length": 2},
        "prompt_tokens": 2,
        "completion_tokens": 2,
        "input_token_logprobs": [[None, 1, None], [-3.0, 2, None]],
        "output_token_logprobs": [[-0.5, 3, None], [-1.0, 4, None]],
        "output_top_logprobs": [[[-0.5, 3, None], [-2.0, 9, None]], None],
    },
}


@dataclass
class Logprob:
    """The fields of vLLM's class of that name."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


def vllm_object(logprobs: Any) -> SimpleNamespace:
    """Return an object with the fields of vLLM's RequestOutput."""
    output = SimpleNamespace(
        index=0, text="it's", token_ids=(3, 4), logprobs=logprobs, finish_reason="length"
    )
    return SimpleNamespace(prompt="Hi", prompt_token_ids=[1, 2], outputs=[output], finished=True)


def one(source: Any) -> Output:
    (output,) = read_outputs("reference", source).outputs
    return output


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_the_documented_form_comes_back(tmp_path: Path) -> None:
    output = from_record("line 1", RECORD)
    assert output.token_ids == (3, 4)
    assert output.logprobs is not None
    assert math.isnan(output.logprobs[1])
    assert output.candidates == (((3, -0.5), (9, -1.5)), ())
    lists = ("prompt_token_ids", "messages", "token_ids")
    assert to_record(output) == RECORD | {name: tuple(RECORD[name]) for name in lists}
    path = save_outputs([output, output], tmp_path / "b.jsonl")
    both = read_outputs("reference", path).outputs
    assert [json.dumps(to_record(each)) for each in both] == [json.dumps(RECORD)] * 2 or [
        to_record(each) for each in both
    ] == [to_record(output)] * 2
    assert both[1].where == f"line 2 of {path}"


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
    assert output.candidates == ((("x", -0.25), ("it", -0.5)), ())
    assert output.text == "it's"
    assert output.tokens == ("it", "'s")


def test_vllm_is_read_as_it_prints() -> None:
    output = from_record("a", RECORD)
    for source in ([read_printed(VLLM)], [vllm_object([{3: Logprob(-0.5)}, {4: Logprob(-1.0)}])]):
        read = one(source)
        assert read.prompt == output.prompt
        assert read.prompt_ids == output.prompt_ids
        assert read.token_ids == output.token_ids
        assert read.text == output.text
        assert read.logprobs == (-0.5, -1.0)
        assert read.finish_reason == "length"


def test_vllm_in_files_of_any_kind(tmp_path: Path) -> None:
    flat = SimpleNamespace(
        start_indices=[0, 2],
        end_indices=[2, 3],
        token_ids=[3, 9, 4],
        logprobs=[-0.5, -2.0, -1.0],
        ranks=[1, 2, 1],
        decoded_tokens=[None] * 3,
    )
    dumped = json.dumps(vllm_object([{3: Logprob(-0.5)}, {4: Logprob(-1.0)}]), default=vars)
    dumped_flat = json.dumps(vllm_object(flat), default=vars)
    path = written(tmp_path, VLLM, "", dumped, f"[{VLLM}, {VLLM}]", dumped_flat)
    outputs = read_outputs("reference", path).outputs
    assert [each.token_ids for each in outputs] == [(3, 4)] * 5
    assert [each.logprobs for each in outputs] == [(-0.5, -1.0)] * 5
    assert outputs[0].candidates == (((3, -0.5), (9, -math.inf)), ((4, -1.0),))
    assert outputs[4].candidates == (((3, -0.5), (9, -2.0)), ((4, -1.0),))


def test_sglang_is_read_as_it_returns_and_prints(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(SGLANG), repr(SGLANG))
    for output in (one([SGLANG]), *read_outputs("reference", path).outputs):
        assert output.prompt_ids == (1, 2)
        assert output.token_ids == (3, 4)
        assert output.logprobs == (-0.5, -1.0)
        assert output.candidates == (((3, -0.5), (9, -2.0)), ())
        assert output.finish_reason == "length"
    # Without log-probabilities of the prompt nothing names it; a key beside the others may.
    bare = {**SGLANG, "meta_info": {"prompt_tokens": 2}, "prompt": "Hi"}
    assert one([bare]).prompt == "Hi"
    assert one([bare]).prompt_ids is None


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
    assert first.logprobs is not None
    assert first.candidates is not None
    # Greedy: what was written is the best candidate.
    assert [place[0][0] for place in first.candidates] == result.tokens[0]
    assert list(first.logprobs) == [place[0][1] for place in first.candidates]
    of_trace = read_outputs("reference", result.trace)
    for name in ("token_ids", "budget", "finish_reason"):
        read = [[getattr(each, name) for each in of.outputs] for of in (of_trace, of_result)]
        assert read[0] == read[1]


def test_nothing_printed_is_executed() -> None:
    assert read_printed("Call(a=[1, -2.5], b={'x': None}, c=inf, d=stop)") == {
        "a": [1, -2.5],
        "b": {"x": None},
        "c": math.inf,
        "d": "stop",
    }
    assert read_printed("array('l', [1, 2])") == [1, 2]
    assert read_printed("__import__('os').system('true')") == {}
    for text in ("", "a b", "(" * 100_000, "x = 1"):
        with pytest.raises(ValueError, match="not what Python prints"):
            read_printed(text)


BAD_LINES = [
    ("{", "is damaged"),
    ("[" * 200_000, "is damaged"),
    ("17", "must be an output"),
    ("{}", "has no output", "no keys"),
    ('{"prompt": "a", "answer": "b"}', "has no output", "'prompt', 'answer'"),
    ('{"token_ids": [1, -2]}', "token_ids[1] must be a token id", "-2"),
    ('{"token_ids": [true]}', "token_ids[0]"),
    ('{"token_ids": "12"}', "token_ids must be a list"),
    ('{"tokens": [1]}', "tokens must be a list of texts"),
    ('{"text": 1}', "text must be a str"),
    ('{"token_ids": [1], "tokens": ["a", "b"]}', "1 token_ids and 2 tokens"),
    ('{"text": "a", "messages": ["Hi"]}', "messages must be a list of objects", "'Hi'"),
    ('{"text": "a", "messages": []}', "messages must be a list of objects"),
    ('{"text": "a", "max_tokens": "9"}', "max_tokens must be an int", "'9'"),
    ('{"text": "a", "has_reasoning": 1}', "has_reasoning must be true or false"),
    ('{"text": "a", "logprobs": [-1]}', "logprobs are given, but not the tokens"),
    ('{"token_ids": [1], "logprobs": [-1, -2]}', "logprobs has 2 entries for 1 tokens"),
    ('{"token_ids": [1], "logprobs": [0.5]}', "logprobs[0] must be a log-probability", "0.5"),
    ('{"token_ids": [1], "top_logprobs": [[1, -2]]}', "must hold pairs"),
    ('{"token_ids": [1], "top_logprobs": [7]}', "must be a list of pairs"),
    ('{"prompt": "a", "outputs": []}', "must hold one output, got 0"),
    ('{"prompt": "a", "outputs": [{"token_ids": [1], "logprobs": [5]}]}', "vLLM's"),
    ('{"prompt": "a", "outputs": [3]}', "outputs[0] must be an object"),
    ('{"meta_info": 3}', "meta_info must be an object"),
    ('{"meta_info": {"output_token_logprobs": [3]}}', "must hold triples"),
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
    check_refusal(lambda: read_outputs("reference", empty), "reference=", "holds no output")
    empty.write_bytes(b'{"text": "\xff"}')
    check_refusal(lambda: read_outputs("reference", empty), "line 1", "not UTF-8")
    check_refusal(lambda: read_outputs("reference", []), "reference is empty")
    check_refusal(lambda: read_outputs("reference", 3), "reference must be a JSONL file", "3")


def test_the_examples_of_the_documentation_are_read() -> None:
    text = (Path(__file__).parents[1] / "docs" / "audit.md").read_text(encoding="utf-8")
    examples = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    outputs = [one([example]) for example in examples]
    assert [output.token_ids for output in outputs] == [(287, 31, 7), (3, 4), (3, 4)]
    for output in outputs:
        assert output.prompt
        assert output.logprobs is not None
        assert output.candidates is not None
        assert output.finish_reason == "length"
    keys = re.findall(r"(?m)^\| `(\w+)` \|", text)
    assert keys == list(KEYS)
