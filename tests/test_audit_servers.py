"""`specviz audit` with servers in place of files. Real ones are in test_real_server.py."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from odd_servers import completion, echo, models, serving

from specviz.cli.main import main as cli
from specviz.servers import client

PROMPTS = ["abc", "defg", "hi"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with the prompts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "RETRIES", 0)
    Path("prompts.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in PROMPTS))
    return tmp_path


def audit(*arguments):
    return cli(["audit", *arguments])


@pytest.mark.slow
def test_one_server_at_two_loads(capsys):
    with serving(echo) as url:
        status = audit(
            "--reference-url", url, "--candidate-url", url, "--prompts", "prompts.jsonl",
            "--concurrency", "1", "3",
        )  # fmt: skip
    said = capsys.readouterr().out
    assert status == 0
    assert "runs/audit/candidate.html" in said
    for role, concurrency in (("reference", 1), ("candidate", 3)):
        conditions = json.loads(Path(f"runs/audit/{role}.json").read_text())
        assert conditions["concurrency"] == concurrency
    lines = Path("runs/audit/candidate.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert texts == ["cba", "gfed", "ih"]


def test_two_servers_that_write_something_else(capsys):
    def other(path, headers, body):
        if path.endswith("/models"):
            return models("other")
        return completion("other", "xyz" if body["prompt"] == "defg" else body["prompt"][::-1])

    with serving(echo) as reference, serving(other) as candidate:
        status = audit(
            "--reference-url", reference, "--candidate-url", candidate, "--prompts",
            "prompts.jsonl", "--outputs", "kept", "--model", "backwards", "other",
        )  # fmt: skip
    assert status == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("specviz audit: not judged: it is not known whether rounding explains")
    assert Path("kept/candidate.html").exists()


def test_a_server_against_a_file_and_a_second_run_replaces_nothing(capsys):
    lines = [json.dumps({"prompt": prompt, "text": prompt[::-1]}) + "\n" for prompt in PROMPTS]
    Path("mine.jsonl").write_text("".join(lines))
    with serving(echo) as url:
        arguments = ["--reference-url", url, "--candidate", "mine.jsonl"]
        assert audit(*arguments, "--prompts", "prompts.jsonl") == 0
        assert audit(*arguments, "--prompts", "prompts.jsonl") == 2
    assert "runs/audit/reference.jsonl exists; choose another" in capsys.readouterr().err


def test_a_server_that_is_down_is_said_in_one_sentence(capsys):
    with serving(echo) as url:
        pass
    status = audit("--reference-url", url, "--candidate-url", url, "--prompts", "prompts.jsonl")
    assert status == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"specviz audit: {url}: cannot be reached")


@pytest.mark.slow
def test_an_interruption_need_not_wait_for_a_slow_server():
    asked = threading.Event()
    released = threading.Event()

    def stuck(path, headers, body):
        if path.endswith("/models") or body["prompt"] == "abc":
            return echo(path, headers, body)
        asked.set()
        released.wait(60)
        return echo(path, headers, body)

    with serving(stuck) as url:
        command = [sys.executable, "-m", "specviz.cli.main", "audit", "--reference-url", url]
        command += ["--candidate-url", url, "--prompts", "prompts.jsonl", "--concurrency", "1"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert asked.wait(60)
            until = time.monotonic() + 10
            while not Path("runs/audit/reference.jsonl").read_bytes() and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.5)  # until it waits for the next answer
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        released.set()
    assert process.returncode == 130
    assert "the texts that had arrived are in runs/audit/reference.jsonl" in said
    assert "Traceback" not in said
    (line,) = Path("runs/audit/reference.jsonl").read_text().splitlines()
    assert json.loads(line)["text"] == "cba"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--reference or --reference-url is needed"),
        (["--reference", "a", "--reference-url", "http://h/v1"], "exclude each other"),
        (["--reference", "a"], "--candidate or --candidate-url is needed"),
        (["--reference-url", "ftp://h", "--candidate", "a"], "--reference-url must be an address"),
        (
            ["--reference-url", "http://h/v1", "--candidate", "a"],
            "--reference-url needs prompts to send; give --prompts",
        ),
        (
            ["--reference", "a", "--candidate", "a", "--concurrency", "1", "2", "3"],
            "--concurrency must be one or two values, got 3",
        ),
    ],
)
def test_sides_that_do_not_fit_are_refused(arguments, said, capsys):
    assert audit(*arguments) == 2
    assert said in capsys.readouterr().err
    assert not Path("runs").exists()
