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


def answering(*answers):
    """A server with an answer for its models, for texts, and so on."""
    return lambda path, *_: answers[0] if path.endswith("/models") else answers[-1]


def message_of(**message):
    choice = {"message": {"content": None} | message}
    return answering(models("m"), (200, JSON, json.dumps({"model": "m", "choices": [choice]})))


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

    extra = {"logit_bias": {5: -100}, "stop": ("\n",)}
    with serving(answer) as url:
        fetch(url, tmp_path / "a.jsonl", ["abc"], max_new_tokens=9, extra=extra, logprobs=2)
        numbers = {"max_new_tokens": np.int64(4), "logprobs": np.int64(2)}
        fetch(url, tmp_path / "b.jsonl", [list(np.arange(5, 7))], **numbers)
    paths = [path for path, _, _ in asked]
    assert paths == ["/v1/models", "/v1/completions"] * 2
    assert {key for _, key, _ in asked} == {f"Bearer {KEY}"}
    body = {"model": "backwards", "prompt": "abc", "temperature": 0.0, "max_tokens": 9}
    further = {"logit_bias": {"5": -100}, "stop": ["\n"]}
    assert asked[1][2] == body | further | {"logprobs": 2}
    assert json.loads((tmp_path / "a.json").read_text())["extra"] == further
    assert asked[3][2] == body | {"prompt": [5, 6], "max_tokens": 4, "logprobs": 2}
    assert lines_of(tmp_path / "b.jsonl")[0]["prompt"] == [5, 6]


def test_chat_sends_a_message_and_reads_its_answer(tmp_path):
    asked = []

    def answer(path, *request):
        asked.append((path, request[-1]))
        return message_of(content="hello")(path)

    out = tmp_path / "out.jsonl"
    with serving(answer) as url:
        fetch(url, out, ["hi"], protocol="chat")
    path, body = asked[-1]
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    (line,) = lines_of(out)
    assert (line["text"], line["messages"]) == ("hello", body["messages"])
    assert line["max_tokens"] == 128


@pytest.mark.parametrize(
    ("message", "text", "has_reasoning"),
    [
        ({"reasoning": "a", "content": "\n\u2028yes"}, "a\n\u2028yes", True),
        ({"content": "yes", "reasoning_content": None}, "yes", None),
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
    ask = client.Server.ask

    def patient(server, prompt):
        try:
            return ask(server, prompt)
        except ServerError:
            time.sleep(0.5)  # the others have arrived by then
            raise

    with serving(answer) as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.Server, "ask", patient)
        with pytest.raises(ServerError, match="status 500"):
            fetch(url, out, concurrency=4)
    assert {line["prompt"] for line in lines_of(out)} == {"abc", "fgh", "ij"}


NOBODY = "http://127.0.0.1:1/v1"
NOT_JSON = ({"a"}, float("nan"), np.int64(3), "\ud800", {(1, 2): 3})


@pytest.mark.parametrize(
    ("url", "name", "options", "words"),
    [
        *(
            (
                NOBODY,
                "out.jsonl",
                {"extra": {"stop": value}},
                "extra must be what JSON can hold, got",
            )
            for value in NOT_JSON
        ),
        *(
            (NOBODY, name, {}, "out must end in .jsonl, got")
            for name in ("qwen-0.6B", "out.json", "out", "out.txt")
        ),
        ("http://me:word@host/v1", "out.jsonl", {}, "url must hold no user, password or query"),
        ("http://host/v1?api_key=word", "out.jsonl", {}, "url must hold no user, password or"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_server_is_asked(
    tmp_path, url, name, options, words
):
    with pytest.raises(ValueError, match="^" + words.replace(".", r"\.")) as caught:
        fetch(url, tmp_path / name, **options)
    assert "word" not in str(caught.value).replace("password", "")
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


def test_conditions_do_not_replace_a_file_of_something_else(tmp_path):
    beside = tmp_path / "prompts.json"
    beside.write_text(json.dumps(PROMPTS))
    with pytest.raises(ValueError, match=r"out: .*prompts.json exists; choose another"):
        fetch("http://127.0.0.1:1/v1", tmp_path / "prompts.jsonl")
    assert json.loads(beside.read_text()) == PROMPTS
    assert list(tmp_path.iterdir()) == [beside]


def test_as_many_requests_are_under_way_as_asked_for_and_no_more(tmp_path):
    under_way, seen = set(), []

    def answer(path, headers, body):
        if path.endswith("/completions"):
            under_way.add(body["prompt"])
            seen.append(len(under_way))
            time.sleep(0.05)
            under_way.discard(body["prompt"])
        return echo(path, headers, body)

    with serving(answer) as url:
        fetch(url, tmp_path / "out.jsonl", [f"prompt {i}" for i in range(12)], concurrency=3)
    assert max(seen) == 3


def test_a_server_that_is_down(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(ServerError, match="cannot be reached"):
            fetch(url, tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


def slow(path, headers, body):
    if path.endswith("/completions"):
        time.sleep(2)
    return echo(path, headers, body)


def repeating(path, _, body):
    return models("real") if path.endswith("/models") else completion(body["model"], "text")


PAGE = 200, "text/html", "<html><body>Welcome</body></html>"
CALLS = [{"function": {"name": "f", "arguments": "{}"}}]
CHAT = {"protocol": "chat"}


@pytest.mark.parametrize(
    ("answer", "options", "words"),
    [
        (slow, {"timeout_s": 0.2}, "no answer within 0.2 s"),
        (answering(PAGE), {}, "is not JSON, got '<html>"),
        (answering(models("m"), PAGE), {}, "is not JSON, got '<html>"),
        (answering((200, JSON, PAGE[2])), {}, "is not JSON, got '<html>"),
        *(
            (answering(models("m"), (200, JSON, text)), {}, "the answer has no text or no model")
            for text in ("{}", "[]", "3", '{"choices": []}', '{"model": "backwards"}')
        ),
        (message_of(), CHAT, "has no text"),
        (message_of(tool_calls=CALLS), CHAT, "has no text"),
        (message_of(content="yes", tool_calls=CALLS), CHAT, "has no text"),
        (
            answering(models("big"), completion("small", "text")),
            {},
            "model='big' was asked for, but 'small' answered",
        ),
        (
            repeating,
            {"model": "wished"},
            "model='wished' is not among those listed, real, and the server repeats",
        ),
        (answering(models("a", "b")), {}, "the models listed are a, b; name one"),
        (
            answering((401, JSON, json.dumps({"error": f"wrong key {KEY}"}))),
            {},
            "refuses the key; set OPENAI_API_KEY",
        ),
    ],
)
def test_a_server_that_misbehaves_is_named_with_what_it_did(tmp_path, answer, options, words):
    message = failure(answer, tmp_path, **options)
    assert words in message
    assert KEY not in message


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


def test_log_probabilities_and_ids_of_tokens_are_kept(tmp_path):
    top = {"token_id:5": -0.1, "token_id:6": -2.5}
    given = {"tokens": ["token_id:5"], "token_logprobs": [-0.1], "top_logprobs": [top]}
    choice = {"logprobs": given, "prompt_token_ids": [1, 2]}
    out = tmp_path / "out.jsonl"
    with serving(answering(models("m"), completion("m", "a", choice=choice))) as url:
        fetch(url, out, ["x"])
    (line,) = lines_of(out)
    assert (line["token_ids"], line["prompt_token_ids"]) == ([5], [1, 2])
    assert (line["logprobs"], line["top_logprobs"]) == ([-0.1], [[[5, -0.1], [6, -2.5]]])


def test_a_folder_that_cannot_be_written_is_found_before_a_server_is_asked():
    with pytest.raises(WriteError, match="cannot be written"):
        fetch("http://127.0.0.1:1/v1", "/dev/null/out.jsonl")
