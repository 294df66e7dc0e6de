"""Fetching texts: what is asked and kept, and servers that are down, slow, wrong or no servers.

The servers here misbehave on purpose; test_real_server.py has a real one.
"""

import json
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from odd_servers import JSON, completion, echo, models, serving

from specviz.servers import ServerError, client, fetch_outputs
from specviz.util.files import WriteError

PROMPTS = ["abc", "de", "fgh", "ij"]
KEY = "sk-secret-of-the-test"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(client, "RETRIES", 0)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def fetch(url, out, prompts=PROMPTS, **options):
    return fetch_outputs(url, prompts, out, progress=False, **options)


def lines_of(path):
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


def failure(answer, tmp_path, **options):
    with serving(answer) as url, pytest.raises(ServerError) as caught:
        fetch(url, tmp_path / "out.jsonl", **options)
    message = str(caught.value)
    assert message.startswith(f"{url}: ")
    assert "\n" not in message
    assert "; " in message
    return message


def test_lines_are_in_the_order_of_the_prompts_and_hold_what_the_server_says(tmp_path):
    out = tmp_path / "deep" / "out.jsonl"
    with serving(echo) as url:
        assert fetch(url, out, concurrency=3, max_new_tokens=7) == out
    lines = lines_of(out)
    assert [line["prompt"] for line in lines] == PROMPTS
    assert [line["text"] for line in lines] == ["cba", "ed", "hgf", "ji"]
    assert [line["index"] for line in lines] == [0, 1, 2, 3]
    assert lines[0]["usage"] == {"prompt_tokens": 3, "completion_tokens": 3}
    conditions = json.loads(out.with_suffix(".json").read_text())
    assert conditions["model"] == "backwards"
    assert (conditions["concurrency"], conditions["max_new_tokens"]) == (3, 7)
    assert conditions["temperature"] == 0


def test_what_is_asked_is_greedy_and_carries_the_budget_the_extra_fields_and_the_key(tmp_path):
    asked = []

    def answer(path, headers, body):
        asked.append((path, headers.get("authorization"), body))
        return echo(path, headers, body)

    with serving(answer) as url:
        fetch(url, tmp_path / "a.jsonl", ["abc"], max_new_tokens=9, extra={"more": 1}, logprobs=2)
        fetch(url, tmp_path / "b.jsonl", [[5, 6]])
    paths = [path for path, _, _ in asked]
    assert paths == ["/v1/models", "/v1/completions"] * 2
    assert {key for _, key, _ in asked} == {f"Bearer {KEY}"}
    body = {"model": "backwards", "prompt": "abc", "temperature": 0.0, "max_tokens": 9}
    assert asked[1][2] == body | {"more": 1, "logprobs": 2}
    assert asked[3][2]["prompt"] == [5, 6]


def test_chat_sends_a_message_and_reads_its_answer(tmp_path):
    asked = []

    def answer(path, _, body):
        if path.endswith("/models"):
            return models("talker")
        asked.append((path, body))
        message = {"role": "assistant", "content": "hello"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        entry = {"id": "1", "object": "chat.completion", "created": 0, "model": "talker"}
        return 200, JSON, json.dumps(entry | {"choices": [choice]})

    out = tmp_path / "out.jsonl"
    with serving(answer) as url:
        fetch(url, out, ["hi"], protocol="chat")
    ((path, body),) = asked
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    (line,) = lines_of(out)
    assert (line["text"], line["finish_reason"]) == ("hello", "stop")
    assert (line["messages"], line["max_tokens"]) == (body["messages"], 128)


@pytest.mark.parametrize(
    ("message", "text", "has_reasoning"),
    [
        ({"content": "", "reasoning_content": "hm\u2028m"}, "hm\u2028m", True),
        ({"content": None, "reasoning": "hmm"}, "hmm", True),
        ({"reasoning": "a", "reasoning_content": "a", "content": "\n\nyes"}, "a\n\nyes", True),
        ({"content": "yes", "reasoning_content": None}, "yes", None),
        ({"content": "", "reasoning": ""}, "", None),
    ],
)
def test_reasoning_is_part_of_the_text(tmp_path, message, text, has_reasoning):
    def answer(path, *_):
        if path.endswith("/models"):
            return models("thinker")
        choice = {"index": 0, "message": message, "finish_reason": "length", "token_ids": [7]}
        entry = {"model": "thinker", "choices": [choice], "prompt_token_ids": [1, 2]}
        return 200, JSON, json.dumps(entry)

    out = tmp_path / "out.jsonl"
    with serving(answer) as url:
        fetch(url, out, ["hi"], protocol="chat")
    (line,) = lines_of(out)
    assert (line["text"], line.get("has_reasoning")) == (text, has_reasoning)
    assert (line["token_ids"], line["prompt_token_ids"]) == ([7], [1, 2])
    assert line["finish_reason"] == "length"
    assert line["usage"] == {}


@pytest.mark.parametrize(
    "message",
    [
        {"content": None},
        {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"content": "yes", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
    ],
)
def test_an_answer_that_is_not_all_text_is_refused(tmp_path, message):
    def answer(path, *_):
        if path.endswith("/models"):
            return models("m")
        return 200, JSON, json.dumps({"model": "m", "choices": [{"message": message}]})

    assert "has no text" in failure(answer, tmp_path, protocol="chat")


def test_what_arrived_before_a_failure_is_kept_and_not_replaced(tmp_path):
    out = tmp_path / "out.jsonl"
    asked = []

    def answer(path, headers, body):
        if path.endswith("/completions"):
            asked.append(body["prompt"])
            if body["prompt"] == "fgh":
                return 500, JSON, '{"error": "out of memory"}'
        return echo(path, headers, body)

    with serving(answer) as url:
        with pytest.raises(ServerError, match=r"status 500, .*out of memory"):
            fetch(url, out, concurrency=1)
        assert [line["prompt"] for line in lines_of(out)] == ["abc", "de"]
        assert asked == ["abc", "de", "fgh"]
        before = out.read_bytes()
        with pytest.raises(ValueError, match=r"out: .*out.jsonl exists; choose another file"):
            fetch(url, out)
    assert out.read_bytes() == before


def test_what_arrived_beside_a_failure_is_kept(tmp_path):
    failed = threading.Event()

    def answer(path, headers, body):
        if path.endswith("/models"):
            return echo(path, headers, body)
        if body["prompt"] == "de":
            failed.set()
            return 500, JSON, "{}"
        failed.wait(20)  # the others are under way when this one fails
        return echo(path, headers, body)

    out = tmp_path / "out.jsonl"
    slow = client._collect

    def late(ask, prompts, concurrency, file, progress):
        def patient(prompt):
            try:
                return ask(prompt)
            except ServerError:
                time.sleep(0.5)  # the others have arrived by then
                raise

        return slow(patient, prompts, concurrency, file, progress)

    with serving(answer) as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_collect", late)
        with pytest.raises(ServerError, match="status 500"):
            fetch(url, out, concurrency=4)
    assert {line["prompt"] for line in lines_of(out)} == {"abc", "fgh", "ij"}


@pytest.mark.parametrize("extra", [{"logit_bias": {5: -100}}, {"stop": ("\n",)}])
def test_extra_fields_are_kept_as_json_carries_them(tmp_path, extra):
    out = tmp_path / "out.jsonl"
    with serving(echo) as url:
        fetch(url, out, ["abc"], extra=extra)
    conditions = json.loads(out.with_suffix(".json").read_text())
    assert conditions["extra"] == json.loads(json.dumps(extra))


@pytest.mark.parametrize("value", [{"a"}, float("nan"), np.int64(3), "\ud800", {(1, 2): 3}])
def test_extra_fields_that_json_cannot_hold_are_refused_before_a_server_is_asked(tmp_path, value):
    with pytest.raises(ValueError, match=r"extra must be what JSON can hold, got .*; pass texts"):
        fetch("http://127.0.0.1:1/v1", tmp_path / "out.jsonl", extra={"stop": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("protocol", ["completions", "chat"])
def test_extra_fields_cannot_override_what_is_asked_anyway(tmp_path, protocol):
    asked = {}

    def answer(path, headers, body):
        asked.update(body)
        if path.endswith("/completions"):
            message = {"content": "hello"}
            return completion("backwards", "hello", choice={"message": message})
        return echo(path, headers, body)

    with serving(answer) as url:
        fetch(url, tmp_path / "out.jsonl", ["abc"], protocol=protocol, logprobs=1)
        assert {"model", "temperature", "max_tokens", "logprobs"} < set(asked)
        for name in (*asked, "max_completion_tokens"):
            with pytest.raises(ValueError, match=f"extra must hold .*, got '{name}', .*; "):
                fetch(url, tmp_path / "other.jsonl", protocol=protocol, extra={name: 1})
    assert not (tmp_path / "other.jsonl").exists()


def test_numbers_of_numpy_are_sent_as_ints(tmp_path):
    asked = []

    def answer(path, headers, body):
        asked.append(body)
        return echo(path, headers, body)

    out = tmp_path / "out.jsonl"
    prompts = [list(np.arange(5, 7))]
    with serving(answer) as url:
        fetch(url, out, prompts, logprobs=np.int64(2), max_new_tokens=np.int64(4))
    assert asked[-1]["prompt"] == lines_of(out)[0]["prompt"] == [5, 6]
    assert asked[-1]["logprobs"] == 2


@pytest.mark.parametrize("name", ["qwen-0.6B", "out.json", "out", "out.txt"])
def test_a_file_that_could_share_its_conditions_with_another_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"out must end in \.jsonl, got .*; add it"):
        fetch("http://127.0.0.1:1/v1", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_conditions_do_not_replace_a_file_of_something_else(tmp_path):
    beside = tmp_path / "prompts.json"
    beside.write_text(json.dumps(PROMPTS))
    with pytest.raises(ValueError, match=r"out: .*prompts.json exists; choose another"):
        fetch("http://127.0.0.1:1/v1", tmp_path / "prompts.jsonl")
    assert json.loads(beside.read_text()) == PROMPTS
    assert list(tmp_path.iterdir()) == [beside]


def test_no_more_requests_are_under_way_than_asked_for(tmp_path):
    lock = threading.Lock()
    under_way = most = 0

    def answer(path, headers, body):
        nonlocal under_way, most
        if path.endswith("/models"):
            return echo(path, headers, body)
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.05)
        with lock:
            under_way -= 1
        return echo(path, headers, body)

    with serving(answer) as url:
        fetch(url, tmp_path / "out.jsonl", [f"prompt {i}" for i in range(12)], concurrency=3)
    assert most == 3


def test_a_server_that_is_down(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(ServerError, match="cannot be reached"):
            fetch(url, tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_slow(tmp_path):
    def answer(path, headers, body):
        if path.endswith("/completions"):
            time.sleep(2)
        return echo(path, headers, body)

    assert "no answer within 0.2 s" in failure(answer, tmp_path, timeout_s=0.2)


def test_a_server_that_answers_with_a_page(tmp_path):
    page = 200, "text/html", "<html><body>Welcome</body></html>"
    assert "is not JSON, got '<html>" in failure(lambda *_: page, tmp_path)

    def late(path, headers, body):
        return page if path.endswith("/completions") else echo(path, headers, body)

    assert "is not JSON, got '<html>" in failure(late, tmp_path)
    disguised = 200, JSON, page[2]
    assert "is not JSON, got '<html>" in failure(lambda *_: disguised, tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"choices": []}', '{"model": "backwards"}'])
def test_json_that_is_no_answer(tmp_path, text):
    def answer(path, headers, body):
        return (200, JSON, text) if path.endswith("/completions") else echo(path, headers, body)

    assert "the answer has no text or no model" in failure(answer, tmp_path)


def test_a_server_that_answers_with_another_model(tmp_path):
    def answer(path, *_):
        return models("big") if path.endswith("/models") else completion("small", "text")

    assert "model='big' was asked for, but 'small' answered" in failure(answer, tmp_path)


def test_a_server_that_repeats_any_name_it_is_sent(tmp_path):
    def answer(path, _, body):
        return models("real") if path.endswith("/models") else completion(body["model"], "text")

    message = failure(answer, tmp_path, model="wished")
    assert "model='wished' is not among those listed, real, and the server repeats" in message


def test_a_model_of_several_must_be_named(tmp_path):
    assert "the models listed are a, b; name one" in failure(lambda *_: models("a", "b"), tmp_path)


def test_a_server_without_a_list_of_models_is_asked_by_name(tmp_path):
    def answer(path, *_):
        broken = 500, "text/plain", "Internal Server Error"
        return broken if path.endswith("/models") else completion("here@main", "text")

    out = tmp_path / "out.jsonl"
    with serving(answer) as url:
        fetch(url, out, ["a"], model="here")
    assert lines_of(out)[0]["model"] == "here@main"
    assert "the models listed are none" in failure(answer, tmp_path / "other")


def test_a_key_is_shown_and_written_nowhere(tmp_path):
    def answer(path, headers, body):
        if path.endswith("/models"):
            return echo(path, headers, body)
        return 400, JSON, json.dumps({"error": f"bad request with {headers['authorization']}"})

    message = failure(answer, tmp_path)
    assert "***" in message
    assert KEY not in message
    with serving(echo) as url:
        fetch(url, tmp_path / "other.jsonl")
    for path in tmp_path.iterdir():
        assert KEY not in path.read_text()

    refused = 401, JSON, json.dumps({"error": f"wrong key {KEY}"})
    message = failure(lambda *_: refused, tmp_path)
    assert "refuses the key; set OPENAI_API_KEY" in message
    assert KEY not in message


@pytest.mark.parametrize("url", ["http://me:word@host/v1", "http://host/v1?api_key=word"])
def test_a_key_in_an_address_is_refused(tmp_path, url):
    with pytest.raises(ValueError, match="must hold no user, password or query") as caught:
        fetch(url, tmp_path / "out.jsonl")
    assert "word" not in str(caught.value).replace("password", "")


def test_log_probabilities_and_ids_of_tokens_are_kept(tmp_path):
    top = {"token_id:5": -0.1, "token_id:6": -2.5}
    given = {"tokens": ["token_id:5"], "token_logprobs": [-0.1], "top_logprobs": [top]}
    spoken = {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": [{"a": -0.5}]}
    choices = {
        "one": {"logprobs": given, "prompt_token_ids": [1, 2]},
        "two": {"logprobs": spoken},
        "three": {"token_ids": [7, 8]},
        "four": {"logprobs": {"tokens": ["a"], "token_logprobs": [], "top_logprobs": None}},
    }

    def answer(path, headers, body):
        if path.endswith("/models"):
            return models("m")
        return completion("m", "a", choice=choices[body["prompt"]])

    out = tmp_path / "out.jsonl"
    with serving(answer) as url:
        fetch(url, out, list(choices))
    one, two, three, four = lines_of(out)
    assert (one["token_ids"], one["prompt_token_ids"], one["logprobs"]) == ([5], [1, 2], [-0.1])
    assert one["top_logprobs"] == [[[5, -0.1], [6, -2.5]]]
    assert (two["tokens"], two["logprobs"], two["top_logprobs"]) == (["a"], [None], [[["a", -0.5]]])
    assert three["token_ids"] == [7, 8]
    assert "logprobs" not in three
    assert "logprobs" not in four


def test_a_folder_that_cannot_be_written_is_found_before_a_server_is_asked():
    with pytest.raises(WriteError, match="cannot be written"):
        fetch("http://127.0.0.1:1/v1", "/dev/null/out.jsonl")
