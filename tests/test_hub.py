"""Where models come from: folders, a hub, or neither because there is no network.

The hub runs on this machine. It answers, denies, does not respond, or is switched off.
"""

import hashlib
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from conftest import check_refusal
from huggingface_hub import HfApi, constants
from test_pair import save

import specviz as sv
from specviz.engine.models import hub

COMMIT = "a" * 40


@dataclass
class Hub:
    """Serves `folder`/owner/name as the Hugging Face hub does, as far as loading a model asks."""

    folder: Path
    gated: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers for a request."""
        self.requests.append(path)
        parts = path.partition("?")[0].strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        owner, name, *rest = [*(parts[2:] if is_api else parts), "", ""]
        model = self.folder / owner / name
        if not name or not model.is_dir():
            return 404, b"", {"X-Error-Code": "RepoNotFound"}
        if is_api and not any(rest):
            siblings = [{"rfilename": file.name} for file in model.iterdir()]
            told = {"id": f"{owner}/{name}", "sha": COMMIT, "siblings": siblings}
            return 200, json.dumps(told).encode(), {}
        if name in self.gated:
            return 403, b"", {"X-Error-Code": "GatedRepo"}
        file = model.joinpath(*rest[2:])
        if is_api or not file.is_file():
            return 404, b"", {"X-Error-Code": "EntryNotFound"}
        body = file.read_bytes()
        return 200, body, {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": COMMIT}


def serve(pages: Hub) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body, headers = pages.answer(self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def go_to(endpoint: str, cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Make transformers and its client use `endpoint` as the hub, with an empty cache."""
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        endpoint + "/{repo_id}/resolve/{revision}/{filename}",
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # Clients made before would keep the old one.
    now = property(lambda self: constants.ENDPOINT, lambda self, value: None)
    monkeypatch.setattr(HfApi, "endpoint", now, raising=False)
    # The client waits before it asks again, half a minute in all; nothing here may need that.
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"waited {seconds} s"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with two models."""
    save(tmp_path / "hub/owner/target")
    save(tmp_path / "hub/owner/draft", num_hidden_layers=1)
    pages = Hub(tmp_path / "hub")
    server = serve(pages)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    go_to(f"http://127.0.0.1:{server.server_port}", tmp_path / "cache", monkeypatch)
    yield pages
    server.shutdown()
    server.server_close()


def switch_off(monkeypatch: pytest.MonkeyPatch):
    """From now on no server listens where the hub was."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")


def test_hub_ids_are_downloaded_once_and_loaded_without_a_network_after_that(here, monkeypatch):
    first = sv.load_pair("owner/target", "owner/draft", device="cpu")
    assert [model.config.num_hidden_layers for model in (first.target, first.draft)] == [2, 1]
    assert {f"/api/models/owner/{name}" for name in ("target", "draft")} <= set(here.requests)
    switch_off(monkeypatch)
    seen = len(here.requests)
    again = sv.load_pair("owner/target", "owner/draft", device="cpu")
    assert len(here.requests) == seen
    assert torch.equal(again.target.lm_head.weight, first.target.lm_head.weight)
    assert repr(again) == (
        "Pair(target=owner/target (LlamaForCausalLM, 24.8K), "
        "draft=owner/draft (LlamaForCausalLM, 15.5K), "
        "vocabulary_size=97, device=cpu, dtype=float32)"
    )


def test_what_the_hub_does_not_have(here):
    check_refusal(
        lambda: sv.load_pair("owner/target", "owner/darft", device="cpu"),
        "draft='owner/darft' is neither a local folder nor a model that "
        f"{constants.ENDPOINT} shows you; check the spelling, or log in",
    )
    # Both are looked for before anything is loaded.
    assert not any("resolve" in path for path in here.requests)


def test_a_model_that_asks_for_leave_first(here):
    here.gated.add("draft")
    check_refusal(
        lambda: sv.load_pair("owner/target", "owner/draft", device="cpu"),
        "draft='owner/draft' cannot be loaded (You are trying to access a gated repo",
        f"see {constants.ENDPOINT}/owner/draft",
    )


@pytest.mark.parametrize(("by_hand", "reason"), [(False, "refused"), (True, "HF_HUB_OFFLINE")])
def test_a_hub_that_cannot_be_reached(by_hand, reason, here, monkeypatch):
    """No server listens, or the hub is switched off by hand."""
    if by_hand:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        switch_off(monkeypatch)
    check_refusal(
        lambda: sv.load_pair("owner/target", "owner/draft"),
        "target='owner/target' is not a local folder, cannot be looked up on the hub",
        reason,
    )
    assert here.requests == []


def test_a_hub_that_does_not_answer(tmp_path, monkeypatch):
    """It takes the connection and stays silent."""
    waits = []
    plain = HfApi.model_info

    def model_info(api: HfApi, name: str, timeout: float) -> object:
        waits.append(timeout)
        return plain(api, name, timeout=timeout)

    monkeypatch.setattr(HfApi, "model_info", model_info)
    monkeypatch.setattr(hub, "HUB_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        go_to(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path, monkeypatch)
        check_refusal(
            lambda: sv.load_pair("owner/target", "owner/draft"),
            "target='owner/target' is not a local folder",
            "cannot be looked up on the hub (",
        )
    assert waits == [0.3]


def test_a_part_of_a_model_in_the_cache_is_no_model(here, monkeypatch):
    sv.load_pair("owner/target", "owner/draft", device="cpu")
    for file in Path(constants.HF_HUB_CACHE).glob(
        "models--owner--draft/snapshots/*/model.safetensors"
    ):
        file.unlink()
    switch_off(monkeypatch)
    check_refusal(
        lambda: sv.load_pair("owner/target", "owner/draft", device="cpu"),
        "draft='owner/draft' cannot be loaded (",
        "go online once",
    )


@pytest.mark.parametrize("place", ["folder", "hub"])
def test_pickled_weights_are_not_read(place, here, monkeypatch):
    """Transformers would ask a public service to convert those of a hub; not from here."""
    monkeypatch.setenv("DISABLE_SAFETENSORS_CONVERSION", "1")
    folder = here.folder / "owner"
    (folder / "draft/model.safetensors").unlink()
    # Under the name of a pickle; what is in it must not matter.
    (folder / "draft/pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    names = [f"{folder if place == 'folder' else 'owner'}/{role}" for role in ("target", "draft")]
    check_refusal(
        lambda: sv.load_pair(*names, device="cpu"),
        f"draft='{names[1]}' has its weights as pickles alone",
        "with save_pretrained",
    )
    assert not any(path.endswith("pytorch_model.bin") for path in here.requests)


def test_code_that_comes_with_a_model_is_not_run(tmp_path):
    target, draft = save(tmp_path / "target"), save(tmp_path / "draft")
    config = json.loads((draft / "config.json").read_text())
    config |= {
        "model_type": "of_its_own",
        "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"},
    }
    (draft / "config.json").write_text(json.dumps(config))
    (draft / "code.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n"
    )
    check_refusal(lambda: sv.load_pair(target, draft), f"draft='{draft}' cannot be loaded (")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name",
    ["models/qwen/target", "no such model", "owner/", "a--b", "C:\\models\\target", "x" * 97],
)
def test_what_can_be_no_hub_id_is_not_looked_for(name, here):
    check_refusal(
        lambda: sv.load_pair(name, name),
        f"target={name!r} is neither a folder nor a hub id",
        error=FileNotFoundError,
    )
    assert here.requests == []


def test_a_folder_that_looks_like_a_hub_id_is_taken_first(here, monkeypatch, tmp_path):
    shutil.copytree(here.folder / "owner", tmp_path / "work/owner")
    monkeypatch.chdir(tmp_path / "work")
    assert sv.load_pair("owner/target", "owner/draft", device="cpu").vocabulary_size == 97
    assert here.requests == []
