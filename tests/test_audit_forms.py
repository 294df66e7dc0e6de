"""Outputs as files, lists and runs, in the own layout and in other tools', and what is none.

The layouts are those of the tools' sources: Spec-Bench's evaluation/eval.py, vLLM's
benchmarks/serve.py, outputs.py and run_batch.py, lm-eval's loggers/evaluation_tracker.py,
llama.cpp's tools/server/server-task.cpp, SGLang's tokenizer_manager.py, OpenAI's API reference.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import check_refusal, debug_page, decoded

import specviz as sv
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
    (output,) = read_outputs("reference", [json.loads(example)]).outputs
    assert output.token_ids == (287, 31, 7)
    assert output.prompt
    assert output.logprobs is not None
    assert output.candidates is not None
    assert output.finish_reason == "length"
    keys = re.findall(r"(?m)^\| `(\w+)` \| [^\n]", text)
    assert set(keys) == {*RECORD, "tokens"}


TEXT = "it\u2028's grün"


def spec_bench(number: int, *turns: str, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "turns": list(turns), "decoding_steps": [3], "new_tokens": [9]}
    choice |= {"wall_time": [0.1], "accept_lengths": [3, 3, 3]}
    line = {"question_id": number, "category": "writing", "answer_id": "x", "model_id": "m"}
    return line | {"choices": [choice], "tstamp": 1.5} | fields


def vllm_bench(*texts: str, **fields: Any) -> dict[str, Any]:
    count = len(texts)
    result = {"date": "20261101-120000", "backend": "vllm", "endpoint_type": "vllm"}
    result |= {"model_id": "m", "num_prompts": count, "request_rate": "inf", "completed": count}
    result |= {"request_throughput": 2.5, "input_lens": [3] * count, "output_lens": [4] * count}
    return result | {"generated_texts": list(texts), "errors": [""] * count} | fields


def lm_eval(number: int, *texts: Any, **fields: Any) -> dict[str, Any]:
    settings = {"until": ["\n\n"], "do_sample": False, "temperature": 0.0, "max_gen_toks": 32}
    line = {"doc_id": number, "doc": {"question": "Hi"}, "target": "5"}
    line |= {"arguments": {"gen_args_0": {"arg_0": f"<s>Hi {number}", "arg_1": settings}}}
    line |= {"resps": [list(texts)], "filtered_resps": ["5"], "filter": "strict-match"}
    return line | {"metrics": ["exact_match"], "doc_hash": "a", "exact_match": 0.0} | fields


def llama_cpp(text: str, **fields: Any) -> dict[str, Any]:
    settings = {"seed": 1, "temperature": 0.0, "top_k": 40, "n_predict": 2, "max_tokens": 2}
    answer = {"index": 0, "content": text, "tokens": [], "id_slot": 0, "stop": True}
    answer |= {"model": "m", "tokens_predicted": 2, "generation_settings": settings}
    answer |= {"prompt": "<s>Hi", "truncated": False, "stop_type": "limit", "stopping_word": ""}
    return answer | fields


def llama_cpp_scores(token: int, logprob: float) -> dict[str, Any]:
    best = {"id": token, "token": "a", "bytes": [97], "logprob": logprob}
    other = {"id": 9, "token": "b", "bytes": [98], "logprob": -3.4028234663852886e38}
    return best | {"top_logprobs": [best, other]}


def chat(text: str | None, *more: str, **message: Any) -> dict[str, Any]:
    choices = []
    for i, each in enumerate((text, *more)):
        said = {"role": "assistant", "content": each, **message}
        choices.append({"index": i, "message": said, "finish_reason": "stop", "logprobs": None})
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return answer | {"choices": choices, "usage": {"completion_tokens": 3}}


def completion(*texts: str, **fields: Any) -> dict[str, Any]:
    choices = []
    for i, text in enumerate(texts):
        choices.append({"index": i, "text": text, "finish_reason": "length", **fields})
    return {"id": "cmpl-1", "object": "text_completion", "model": "m", "choices": choices[::-1]}


def batch(name: str, body: Any, error: Any = None, status: int = 200) -> dict[str, Any]:
    response = {"status_code": status, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": name, "response": response, "error": error}


SCORES = {"tokens": ["token_id:3", "token_id:4"], "token_logprobs": [-0.5, -1.0]}
SCORES |= {"top_logprobs": [{"token_id:3": -0.5, "token_id:9": -2.0}, None], "text_offset": [0, 1]}
LOGPROBS = [
    {"3": {"logprob": -0.5, "rank": 1}, "9": {"logprob": float("-inf"), "rank": 2}},
    {"4": {"logprob": -1.0, "rank": 1}},
]
FLAT = {"start_indices": [0, 2], "end_indices": [2, 3], "token_ids": [3, 9, 4]}
FLAT |= {"logprobs": [-0.5, -2.0, -1.0], "ranks": [1, 2, 1], "decoded_tokens": [None] * 3}


def vllm(logprobs: Any) -> dict[str, Any]:
    """As json.dumps(output, default=vars) writes it."""
    output = {"index": 0, "text": TEXT, "token_ids": [3, 4], "logprobs": logprobs}
    output |= {"finish_reason": "length", "stop_reason": None}
    request = {"request_id": "0", "prompt": "Hi", "prompt_token_ids": [1, 2]}
    return request | {"outputs": [output], "finished": True}


def sglang(**meta: Any) -> dict[str, Any]:
    meta = {"id": "a", "finish_reason": {"type": "length", "length": 2}, "prompt_tokens": 2} | meta
    return {"text": TEXT, "output_ids": [3, 4], "meta_info": meta}


SGLANG_SCORES = {
    "input_token_logprobs": [[None, 1, None], [-3.0, 2, None]],
    "output_token_logprobs": [[-0.5, 3, None], [-1.0, 4, None]],
    "output_top_logprobs": [[[-0.5, 3, None], [-2.0, 9, None]], None],
}
BEST = {"token_ids": (3, 4), "logprobs": (-0.5, -1.0)}
HI = ({"role": "user", "content": "Hi"},)

# What a file holds, and what is read of it: fields of each output.
READ: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "Spec-Bench, in the order of the questions": (
        [spec_bench(82, "b", "later"), spec_bench(81, TEXT), spec_bench(100, "")],
        [{"text": TEXT, "is_chat": True, "prompt": None}, {"text": "b"}, {"text": ""}],
    ),
    "Spec-Bench, a question asked again": (
        [spec_bench(81, "a"), spec_bench(81, "a", "later")],
        [{"text": "a"}],
    ),
    "vllm bench serve": ([vllm_bench(TEXT, "")], [{"text": TEXT, "is_chat": False}, {"text": ""}]),
    "vllm bench serve, chat, --append-result": (
        [vllm_bench("a", backend="openai-chat"), vllm_bench("b", errors=None)],
        [{"text": "a", "is_chat": True}, {"text": "b", "is_chat": False}],
    ),
    "lm-eval, a line for each filter": (
        [lm_eval(0, TEXT), lm_eval(1, "b"), lm_eval(0, TEXT, filter="flexible-extract")],
        [{"text": TEXT, "prompt": "<s>Hi 0", "budget": 32}, {"text": "b", "prompt": "<s>Hi 1"}],
    ),
    "lm-eval, repeats": ([lm_eval(0, "a", "b")], [{"text": "a"}, {"text": "b"}]),
    "lm-eval, a chat, and arguments as a list": (
        [lm_eval(0, "a", arguments=[[[json.dumps(HI)], {"max_tokens": 5}]])],
        [{"text": "a", "messages": HI, "is_chat": True, "budget": 5}],
    ),
    "llama.cpp": (
        [llama_cpp(TEXT), llama_cpp("b", tokens=[3, 4], stop_type="eos")],
        [
            {"text": TEXT, "token_ids": None, "finish_reason": "length", "budget": 2},
            {"token_ids": (3, 4), "finish_reason": "stop", "prompt": "<s>Hi"},
        ],
    ),
    "llama.cpp, with scores, unlimited, and a full context": (
        [
            llama_cpp(
                "ab",
                completion_probabilities=[llama_cpp_scores(3, -0.5), llama_cpp_scores(4, -1.0)],
                generation_settings={"temperature": 0.8, "top_k": 1, "n_predict": -1},
            ),
            llama_cpp("b", truncated=True),
        ],
        [BEST | {"budget": None}, {"budget": None, "finish_reason": "length"}],
    ),
    "llama.cpp, older": (
        [llama_cpp("a", stop_type=None, stopped_eos=True, prompt=[1, 2])],
        [{"finish_reason": "stop", "prompt_ids": (1, 2), "prompt": None}],
    ),
    "OpenAI, chat": (
        [chat(TEXT), chat("", reasoning_content="hmm"), chat(None, reasoning="hmm")],
        [
            {"text": TEXT, "is_chat": True, "finish_reason": "stop", "has_reasoning": False},
            {"text": "hmm", "has_reasoning": True},
            {"text": "hmm", "has_reasoning": True},
        ],
    ),
    "OpenAI, chat with the request beside it": (
        [chat("a") | {"messages": HI, "max_completion_tokens": 7}],
        [{"text": "a", "messages": HI, "budget": 7}],
    ),
    "OpenAI, several choices": (
        [chat("a", "b"), completion("c", "d", "e")],
        [{"text": "a"}, {"text": "b"}, {"text": "c"}, {"text": "d"}, {"text": "e"}],
    ),
    "OpenAI, completions with ids and scores": (
        [completion(TEXT, logprobs=SCORES, prompt_token_ids=[1, 2])],
        [BEST | {"text": TEXT, "is_chat": False, "finish_reason": "length", "prompt_ids": (1, 2)}],
    ),
    "OpenAI, a batch in any order": (
        [batch("r-10", chat("c")), batch("r-9", chat("b")), batch("r-1", completion(TEXT))],
        [{"text": TEXT, "is_chat": False}, {"text": "b", "is_chat": True}, {"text": "c"}],
    ),
    "vLLM": ([vllm(LOGPROBS), vllm(FLAT)], [BEST | {"prompt_ids": (1, 2), "prompt": "Hi"}, BEST]),
    "vLLM without scores": ([vllm(None)], [{"token_ids": (3, 4), "logprobs": None}]),
    "SGLang": ([sglang(**SGLANG_SCORES)], [BEST | {"prompt_ids": (1, 2), "text": TEXT}]),
    "SGLang without scores": (
        [sglang() | {"prompt": "Hi"}],
        [{"prompt": "Hi", "token_ids": (3, 4), "finish_reason": "length", "logprobs": None}],
    ),
    "own, with no error": ([{"text": "a", "error": None}], [{"text": "a"}]),
    "own, tokens as texts, and candidates as an object": (
        [{"tokens": ["it", "'s"], "top_logprobs": [{"it": -0.5, "x": -0.25}, None]}],
        [{"text": "it's", "tokens": ("it", "'s"), "candidates": ({"it": -0.5, "x": -0.25}, {})}],
    ),
    "bare ids and texts": (
        [[3, 4], "text", {"text": "more"}],
        [{"tokens": (3, 4), "text": None}, {"tokens": None, "text": "text"}, {"text": "more"}],
    ),
}


def fields_of(outputs: tuple[Output, ...], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert len(outputs) == len(wanted)
    found = []
    for output, each in zip(outputs, wanted, strict=True):
        found.append({name: getattr(output, name) for name in each})
    return found


@pytest.mark.parametrize("name", READ)
def test_what_other_tools_save_is_read(tmp_path: Path, name: str) -> None:
    values, wanted = READ[name]
    lines, indented = tmp_path / "a.jsonl", tmp_path / "a.json"
    lines.write_text("".join(json.dumps(each) + "\n" for each in values))
    text = json.dumps(values if len(values) > 1 else values[0], indent=2, ensure_ascii=False)
    indented.write_text(text, encoding="utf-8")
    for source in (lines, indented, values):
        assert fields_of(read_outputs("reference", source).outputs, wanted) == wanted


def test_what_is_left_out_is_said() -> None:
    assert read_outputs("reference", READ["vLLM"][0]).name == "reference"
    found = sv.audit([spec_bench(1, "a", "b")], [spec_bench(1, "a", "c")])
    assert found.conditions["candidate"] == "candidate (first turns)"


def test_prompts_of_a_chat_become_messages() -> None:
    outputs = read_outputs("reference", [chat("a"), completion("b")]).outputs
    assert [each.with_prompt("Hi", "prompts[0]").messages for each in outputs] == [HI, None]
    assert outputs[1].with_prompt(HI, "prompts[1]").messages == HI


HOT = {"temperature": 0.8, "top_k": 40}
CALLED = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
REFUSED: list[tuple[Any, str]] = [
    (spec_bench(1, "ERROR"), "is a request that failed, 'ERROR'"),
    (spec_bench(1), "turns must be a list of texts, one or more, got []"),
    (spec_bench(1, choices=[]), "choices must be a list of objects, one or more, got []"),
    (vllm_bench("a", "", errors=["", "Timeout"]), "generated_texts[1] is a request that failed"),
    (vllm_bench(), "generated_texts must be a list of texts, one or more, got []"),
    ({"backend": "vllm", "request_throughput": 2.5}, "no texts; benchmark with --save-detailed"),
    (
        lm_eval(0, [-1.5, False]),
        "resps[0] must be a list of texts",
    ),
    (lm_eval(0, "a", arguments=[["Hi", {"do_sample": True}]]), "was sampled"),
    (lm_eval(0, "a", arguments=[]), "is not as lm-eval's samples writes it"),
    (llama_cpp("a", generation_settings=HOT), "was sampled with temperature=0.8"),
    (llama_cpp("a", stop=False), "is a part of a stream"),
    (llama_cpp("a", content=None), "has null for"),
    (llama_cpp("a", completion_probabilities=[{"logprob": -1}]), "is not as llama.cpp's"),
    ({"error": {"code": 500, "message": "out of memory"}}, "is a request that failed, {'code'"),
    (chat(None), "has a choice that is not all text"),
    (chat("a", tool_calls=CALLED), "has a choice that is not all text"),
    (completion(), "choices must be a list of objects, one or more, got []"),
    ({"choices": [{"index": 0, "delta": {"content": "a"}}]}, "not as parts of a stream"),
    (batch("a", {"error": {"message": "too long"}}, status=400), "is a request that failed, {'m"),
    (batch("a", None, error={"code": "batch_expired"}), "is a request that failed, {'code'"),
    ({"custom_id": "a", "response": None}, "is a request that failed, 'no answer'"),
    (batch("a", {"output": []}), "choices must be a list of objects, one or more, got None"),
    (vllm([5]), "is not as vLLM's RequestOutput writes it"),
    (vllm(None) | {"outputs": []}, "outputs must be a list of objects, one or more, got []"),
    (sglang(output_token_logprobs=[3]), "is not as SGLang's Engine.generate writes it"),
    ({"meta_info": 3}, "is not as SGLang's Engine.generate writes it"),
    ({"custom_id": "a", "method": "POST", "body": {}}, "OpenAI's answers, vllm bench serve"),
    ({}, "but no keys"),
]


@pytest.mark.parametrize(("value", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_cannot_be_read_is_named(tmp_path: Path, value: Any, says: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "a"}}\n\n{json.dumps(value)}\n')
    check_refusal(lambda: read_outputs("reference", path), f"line 3 of {path}", says)
    check_refusal(lambda: read_outputs("reference", ["a", value]), "reference[1]", says)


def test_two_texts_of_one_prompt_are_refused() -> None:
    for make in (spec_bench, lm_eval):
        sides = [make(8, "a"), make(9, "a"), make(8, "b")]
        begins = "reference[2] and reference[0] have other texts for one prompt"
        check_refusal(lambda sides=sides: read_outputs("reference", sides), begins)


def test_objects_of_an_engine_are_refused() -> None:
    check_refusal(lambda: read_outputs("reference", [Path()]), "reference[0] must be an output")


def test_answers_to_other_requests_are_refused() -> None:
    """Two files that each lack another failed request have as many answers, in other order."""
    sides = [[batch(name, chat("a")) for name in names] for names in ("ab", "ac")]
    check_refusal(lambda: sv.audit(*sides), "the prompts of candidate[1] and reference[1] differ")
    assert sv.audit(sides[0], [chat("a"), chat("a")]).passed  # a file that names none
