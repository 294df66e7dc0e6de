"""Texts from a real server: `transformers serve` with the embedded target, on this machine."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import specviz as sv
from specviz.checks.audit.reading import read_outputs
from specviz.cli.main import main as cli
from specviz.servers import ServerError, fetch_outputs, read_page

pytestmark = pytest.mark.slow
STARTS_WITHIN_S = 180
BUDGET = 24


@pytest.fixture(scope="module")
def folder(embedded: sv.Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded target, as a server loads it."""
    place = tmp_path_factory.mktemp("served") / "target"
    embedded.target.save_pretrained(place)
    embedded.tokenizer.save_pretrained(place)
    return place


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run a server without a network, and yield its address once it is up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    cache = folder.with_name("hub")
    cache.mkdir(exist_ok=True)  # the server fails at /v1/models without one
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache)}
    log = folder.with_name("log")
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_until_up(process, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(30)


def wait_until_up(process: "subprocess.Popen[bytes]", health: str, log: Path) -> None:
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(health, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"transformers serve does not start:\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as address:
        yield address


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    return sv.load_prompts(limit=6)


@pytest.fixture(scope="module")
def wanted(embedded: sv.Pair, prompts: list[str]) -> list[str]:
    """What the target writes by itself."""
    found = sv.generate(
        embedded, prompts, strategy="autoregressive", max_new_tokens=BUDGET, progress=False
    )
    return found.texts


def fetch(url, prompts, out, folder, **options):
    options = {"model": str(folder), "max_new_tokens": BUDGET, "progress": False} | options
    path = fetch_outputs(url, prompts, out, **options)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_its_texts_are_those_of_the_model_whatever_the_load(url, folder, prompts, wanted, tmp_path):
    for concurrency in (1, 4):
        out = tmp_path / f"{concurrency}.jsonl"
        lines = fetch(url, prompts, out, folder, concurrency=concurrency)
        assert [line["prompt"] for line in lines] == prompts
        assert [line["text"] for line in lines] == wanted
        assert {line["model"] for line in lines} == {f"{folder}@main"}
        assert all(line["usage"]["completion_tokens"] <= BUDGET for line in lines)


def test_it_refuses_another_model_a_budget_in_words_and_fields_it_does_not_know(
    url, folder, prompts, tmp_path
):
    with pytest.raises(ServerError, match=r"status 400, .*pinned to"):
        fetch(url, prompts, tmp_path / "a.jsonl", folder, model="another")
    with pytest.raises(ServerError, match=r"status 422, .*Unexpected fields"):
        fetch(url, prompts, tmp_path / "b.jsonl", folder, extra={"return_token_ids": True})
    # The embedded pair has no chat template.
    with pytest.raises(ServerError, match="status 500"):
        fetch(url, prompts[:1], tmp_path / "c.jsonl", folder, protocol="chat")
    with pytest.raises(ServerError, match="status 404; start the server with its metrics"):
        read_page(url)


def test_a_collection_survives_the_end_of_its_server(folder, prompts, wanted, tmp_path):
    out = tmp_path / "out.jsonl"
    options = {"model": str(folder), "max_new_tokens": BUDGET, "concurrency": 1}
    code = (
        "import json, sys\n"
        "from specviz.servers import fetch_outputs\n"
        "url, prompts, out, options = sys.argv[1:]\n"
        "fetch_outputs(url, json.loads(prompts), out, **json.loads(options))\n"
    )
    with serving(folder) as url:
        arguments = [url, json.dumps(prompts), str(out), json.dumps(options)]
        command = [sys.executable, "-c", code, *arguments]
        collecting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not out.exists() or out.read_bytes().count(b"\n") < 2:
            assert collecting.poll() is None, collecting.communicate()
            time.sleep(0.01)
    _, said = collecting.communicate(timeout=120)
    assert collecting.returncode != 0
    assert "ServerError" in said
    kept = out.read_bytes().count(b"\n")
    assert 2 <= kept < len(prompts)
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [line["text"] for line in lines] == wanted[:kept]


def test_an_audit_passes_a_decoder_in_step_and_finds_another_model(
    url, folder, embedded, prompts, wanted, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    asked = [{"prompt": prompt} for prompt in prompts]
    Path("prompts.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in asked))
    speculated = sv.generate(
        embedded, prompts, strategy="inplace", max_new_tokens=BUDGET, progress=False
    )
    mine = [{"prompt": p, "text": t} for p, t in zip(prompts, speculated.texts, strict=True)]
    Path("mine.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in mine))
    shared = ["audit", "--reference-url", url, "--prompts", "prompts.jsonl"]
    shared += ["--max-new-tokens", str(BUDGET), "--target", str(folder), "--device", "cpu"]
    names = ["--model", str(folder)]
    assert cli([*shared, *names, "--candidate", "mine.jsonl"]) == 0
    outputs = read_outputs("reference", "runs/audit/reference.jsonl").outputs
    assert [output.text for output in outputs] == wanted
    loads = ["--concurrency", "1", "4", "--outputs", "loads"]
    assert cli([*shared, *names, *loads, "--candidate-url", url]) == 0
    capsys.readouterr()

    other = tmp_path / "served" / "draft"
    embedded.draft.save_pretrained(other)
    embedded.tokenizer.save_pretrained(other)
    with serving(other) as wrong:
        names = ["--model", str(folder), str(other), "--outputs", "other"]
        assert cli([*shared, *names, "--candidate-url", wrong]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("specviz audit: ")
