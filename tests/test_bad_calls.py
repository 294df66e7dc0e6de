"""A hundred calls that cannot work, over every public name and command.

Each raises one sentence that names the argument, its value and, after a semicolon, the remedy. It
comes from specviz, not from inside torch or transformers, and no file is left behind, complete or
partial.
"""

import errno
import math
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import VOCABULARY, make_config, make_pair
from tiny_run import TRACE
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertLMHeadModel, LlamaForCausalLM, PreTrainedTokenizerFast

import specviz as sv
from specviz.bench import Grid, run_bench
from specviz.checks.check import check_invariants
from specviz.cli.main import main as cli
from specviz.costs.shapes import ModelShape
from specviz.engine.drafters import SyntheticDrafter
from specviz.record.replay import Replay
from specviz.util.files import save_measured, write, write_folder

PACKAGE = Path(sv.__file__).parent


def pair() -> sv.Pair:
    return make_pair("llama")


def tokenizer(tokens: int) -> PreTrainedTokenizerFast:
    """One without pad, bos and eos tokens."""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(
            models.WordLevel({f"w{i}": i for i in range(tokens)}, unk_token="w0")
        )
    )


def model(**changes: Any) -> LlamaForCausalLM:
    config = make_config("llama")
    config.update(changes)
    return LlamaForCausalLM(config)


def generate(prompts: Any = ([1, 2], [3]), **options: Any) -> object:
    return sv.generate(
        pair(), list(prompts) if isinstance(prompts, tuple) else prompts, progress=False, **options
    )


def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when somebody writes a file."""

    def write(self: Path, *_: object, **__: object) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    monkeypatch.setattr(Path, "write_text", write)


# what the message begins with (a pattern), the call
OPTIONS: list[tuple[str, Callable[[], object]]] = [
    (r"pair must be a Pair, got NoneType", lambda: sv.generate(None, [[1]])),
    (r"option 'record' is unknown", lambda: sv.decode(pair(), [[1]], record=True)),
    (r"pair must be a Pair, got tuple", lambda: sv.decode((1, 2), [[1]])),
    (r"prompts=\[\] is empty", lambda: generate([])),
    (r"prompts must be a list, got 'text'", lambda: generate("text")),
    (r"prompts\[0\]=\[\] is empty", lambda: generate([[]])),
    (r"prompts\[0\] is text, but the pair has no tokenizer", lambda: generate(["text"])),
    (
        r"prompts\[1\]\[0\] must be a token id from 0 to 96, got 97",
        lambda: generate([[1], [VOCABULARY]]),
    ),
    (r"prompts\[0\]\[1\] must be a token id from 0 to 96, got -1", lambda: generate([[1, -1]])),
    (r"prompts\[0\]\[0\] must be a token id, got 1\.5", lambda: generate([[1.5]])),
    (r"prompts\[0\]\[0\] must be a token id, got True", lambda: generate([[True]])),
    (
        r"prompts\[0\] must be text or a list of token ids, got array\(\[\[1",
        lambda: generate([np.array([[1, 2], [3, 4]])]),
    ),
    (r"prompts must be a list, got tensor\(\[\[1", lambda: generate(torch.tensor([[1, 2]]))),
    (
        r"prompts\[0\] has 244 tokens; .* it needs 257 positions and the models have 256",
        lambda: generate([[1] * 244], max_new_tokens=7),
    ),
    (r"strategy='eqspek' is unknown", lambda: generate(strategy="eqspek")),
    (r"strategy must be a name or a Strategy, got 7", lambda: generate(strategy=7)),
    (r"drafter='modell' is unknown", lambda: generate(drafter="modell")),
    (r"drafter must be a name or a Drafter, got None", lambda: generate(drafter=None)),
    (r"num_draft_tokens must be an int >= 1, got 0", lambda: generate(num_draft_tokens=0)),
    (
        r"num_draft_tokens must be an int >= 1 or 'auto', got 'often'",
        lambda: generate(num_draft_tokens="often"),
    ),
    (r"batch_size must be an int >= 1, got 0", lambda: generate(batch_size=0)),
    (r"batch_size must be an int >= 1, got 2\.0", lambda: generate(batch_size=2.0)),
    (r"max_new_tokens must be an int >= 1, got -3", lambda: generate(max_new_tokens=-3)),
    (r"max_new_tokens has 3 entries for 2 prompts", lambda: generate(max_new_tokens=[1, 2, 3])),
    (r"sampling must be a SamplingParams or None, got 0\.7", lambda: generate(sampling=0.7)),
    (r"seed must be an int >= 0, got -1", lambda: generate(seed=-1)),
    (r"deterministic must be a bool, got 'yes'", lambda: generate(deterministic="yes")),
    (r"graphs must be a bool, got 1", lambda: generate(graphs=1)),
    (r"graphs=True, but the pair is on cpu", lambda: generate(graphs=True)),
    (
        r"graphs=True replays phases without their records",
        lambda: generate(graphs=True, record=True),
    ),
    (r"compile must be a bool, got 'auto'", lambda: generate(compile="auto")),
    (r"record must be a bool, got 'run\.safetensors'", lambda: generate(record="run.safetensors")),
    (r"on_interrupt='return' is unknown", lambda: generate(on_interrupt="return")),
    (
        r"window=4 is smaller than batch_size=8",
        lambda: generate(strategy=sv.strategy("exspec", window=4)),
    ),
    (
        r"rates has 2 entries for num_draft_tokens=5",
        lambda: generate(drafter=sv.drafter("synthetic", rates=[0.5, 0.4])),
    ),
    (r"strategy='x' is unknown", lambda: sv.strategy("x")),
    (r"strategy 'inplace' takes no option 'window'", lambda: sv.strategy("inplace", window=3)),
    (r"window must be an int >= 1, got 0", lambda: sv.strategy("exspec", window=0)),
    (r"fallback='never' is unknown", lambda: sv.strategy("exspec", fallback="never")),
    (r"max_wait must be an int >= 1, got 0", lambda: sv.strategy("exspec", max_wait=0)),
    (r"refill must be a bool, got None", lambda: sv.strategy("eqspec", refill=None)),
    (r"break_invariant='all' is unknown", lambda: sv.strategy("eqspec", break_invariant="all")),
    (r"positions='row' is unknown", lambda: sv.strategy("masking", positions="row")),
    (r"drafter='x' is unknown", lambda: sv.drafter("x")),
    (
        r"rates must be numbers from 0 to 1, got \[1\.2\]",
        lambda: sv.drafter("synthetic", rates=[1.2]),
    ),
    (r"rates must be numbers from 0 to 1, got \[-0\.1\]", lambda: SyntheticDrafter(rates=[-0.1])),
    (
        r"rates must be numbers from 0 to 1, got \[nan\]",
        lambda: sv.drafter("synthetic", rates=[math.nan]),
    ),
    (r"rates must not rise, got \[0\.2, 0\.4\]", lambda: sv.drafter("synthetic", rates=[0.2, 0.4])),
    (r"min_ngram=5 is larger than max_ngram=3", lambda: sv.drafter("lookup", min_ngram=5)),
    (r"temperature must be a number from 1e-05 to 100000\.0, got 0", lambda: sv.SamplingParams(0)),
    (
        r"temperature must be a number from 1e-05 to 100000\.0, got nan",
        lambda: sv.SamplingParams(math.nan),
    ),
    (r"top_k must be an int >= 1, got 0", lambda: sv.SamplingParams(1.0, top_k=0)),
    (
        r"top_p must be a number above 0 and at most 1, got 1\.5",
        lambda: sv.SamplingParams(1.0, top_p=1.5),
    ),
    (r"coupling='none' is unknown", lambda: sv.SamplingParams(1.0, coupling="none")),
    (r"target=NoneType must be a transformers model", lambda: sv.Pair(None, None)),
    (
        r"target=BertLMHeadModel must be a decoder-only",
        lambda: sv.Pair(*[BertLMHeadModel(BertConfig(**SMALL, is_decoder=False))] * 2),
    ),
    (
        r"draft has a vocabulary of 80 tokens and target of 97",
        lambda: sv.Pair(model(), model(vocab_size=80)),
    ),
    (
        r"tokenizer has 200 tokens and the models only 97",
        lambda: sv.Pair(model(), model(), tokenizer(200)),
    ),
    (
        r"tokenizer must be a transformers tokenizer, got str",
        lambda: sv.Pair(model(), model(), "gpt2"),
    ),
    (r"draft is on meta, target on cpu", lambda: sv.Pair(model(), model().to("meta"))),
    (
        r"target=LlamaForCausalLM has rope_type='dynamic'",
        lambda: sv.Pair(*[model(rope_parameters=DYNAMIC)] * 2),
    ),
    (r"draft=None with 'a' for the other", lambda: sv.load_pair("a")),
    (r"device='tpu' is unknown", lambda: sv.load_pair(device="tpu")),
    (r"device='cuda:99' is not there", lambda: sv.load_pair(device="cuda:99")),
    (r"dtype='int8' is unknown", lambda: sv.load_pair(dtype="int8")),
    (r"target='/nowhere' is not a folder", lambda: sv.load_pair("/nowhere", "/nowhere")),
    (r"source='gsm8k' is unknown", lambda: sv.load_prompts("gsm8k")),
    (r"limit must be an int >= 1, got 0", lambda: sv.load_prompts(limit=0)),
    (r"path='/nowhere' is not a file", lambda: sv.load_prompts("spec_bench", "/nowhere")),
    (r"/nowhere: cannot be read", lambda: sv.Trace.load("/nowhere")),
    (r"/nowhere/run: cannot be written", lambda: TRACE.save("/nowhere/run")),
    (r"\.: is a folder", lambda: sv.Trace.load(".")),
    (r"there is no request 99", lambda: TRACE.prompt(99)),
    (r"round=99, phase='draft' is not in the record", lambda: Replay(TRACE).frame(99, "draft")),
    (r"round=0, phase='x' is not in the record", lambda: Replay(TRACE).frame(0, "x")),
    (r"trace must be a Trace, got str", lambda: check_invariants("run.safetensors")),
    (r"result must be a Result or a Trace, got NoneType", lambda: sv.compare(None, None)),
    (r"trace=None", lambda: sv.step_through(None)),
    (r"other must be a Trace, got str", lambda: sv.step_through(TRACE, "other")),
    (
        r"step must be an int from 0 to \d+, got -9",
        lambda: sv.step_through(TRACE).export_svg("/tmp/never.svg", step=-9),
    ),
    (
        r"/nowhere/page\.html: cannot be written",
        lambda: sv.step_through(TRACE).export_html("/nowhere/page.html"),
    ),
    (r"strategies is empty", lambda: Grid(strategies=[])),
    (r"batch_sizes must be a list, got 4", lambda: Grid(batch_sizes=4)),
    (r"pairs=\[\] is empty", lambda: run_bench([], [[1]], Grid())),
    (r"pairs\[0\] must be a pair, got 'own'", lambda: run_bench(["own"], [[1]], Grid())),
    (r"model_type must be one of", lambda: ModelShape.from_config({})),
]
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 20,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
COMMANDS: list[tuple[str, list[str]]] = [
    (r"--target a needs a draft", ["generate", "--target", "a"]),
    (r"--top-p 0.5 needs a temperature", ["generate", "--top-p", "0.5"]),
    (
        r"temperature must be a number from 1e-05 to 100000\.0, got -1\.0",
        ["generate", "--temperature", "-1"],
    ),
    (r"batch_size must be an int >= 1, got 0", ["generate", "--batch-size", "0"]),
    (
        r"num_draft_tokens must be an int >= 1 or 'auto', got 'x'",
        ["generate", "--num-draft-tokens", "x"],
    ),
    (r"prompts\[0\]='' is empty", ["generate", ""]),
    (r"strategy='x' is unknown", ["generate", "--strategy", "x"]),
    (r"device='tpu' is unknown", ["generate", "--device", "tpu"]),
    (r"limit must be an int >= 1, got 0", ["study", "survey", "--limit", "0"]),
    (r"/nowhere: cannot be read", ["replay", "/nowhere"]),
    (
        r"rates must be numbers from 0 to 1, got \[1\.5\]",
        ["bench", "--rates", "1.5", "--drafters", "synthetic", "--strategies", "inplace"],
    ),
    (r"batch_sizes\[0\] must be an int >= 1, got -1", ["bench", "--batch-sizes", "-1"]),
    (r"strategy='x' is unknown", ["bench", "--strategies", "x"]),
    (r"shapes must be one of .*, got 'x'", ["bench", "--shapes", "x"]),
    (r"device='tpu' is unknown", ["study", "ceilings", "--device", "tpu"]),
]


SMALLEST = Grid(["inplace"], [1], [2], [2], repetitions=1)
SAVERS: dict[str, Callable[[Path], object]] = {
    "trace": lambda path: TRACE.save(path),
    "page": lambda path: sv.step_through(TRACE).export_html(path.with_suffix(".html")),
    "table": lambda path: save_measured(
        pd.DataFrame({"a": [1.0]}), {"device": "cpu"}, path.with_suffix(".csv")
    ),
    "file": lambda path: write(path, b"content"),
    "bench": lambda path: run_bench(
        pair(),
        [[1]],
        Grid(["inplace"], [1], [2], [2], repetitions=1),
        path.with_suffix(".csv"),
        progress=False,
    ),
}


def check_sentence(error: BaseException, begins: str) -> None:
    message = str(error)
    assert re.match(begins, message), message
    assert "\n" not in message
    assert len(message) < 400, message
    assert message.partition("; ")[2], message


def deepest(error: BaseException) -> str:
    """The file that raised it."""
    return traceback.extract_tb(error.__traceback__)[-1].filename


def test_there_are_enough_of_them() -> None:
    assert len(OPTIONS) + len(COMMANDS) >= 95
    assert len({begins for begins, _ in OPTIONS} | {str(command) for _, command in COMMANDS}) > 90


@pytest.mark.parametrize(
    ("begins", "call"), OPTIONS, ids=[f"{i} {begins}" for i, (begins, _) in enumerate(OPTIONS)]
)
def test_a_call_that_cannot_work(
    begins: str, call: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError, OSError, IndexError)) as caught:
        call()
    check_sentence(caught.value, begins)
    assert Path(deepest(caught.value)).is_relative_to(PACKAGE), deepest(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("begins", "command"), COMMANDS, ids=[" ".join(command) for _, command in COMMANDS]
)
def test_a_command_that_cannot_work(
    begins: str,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli(command) == 2
    said = capsys.readouterr().err.strip()
    name, _, message = said.partition(": ")
    words = 2 if command[0] == "study" else 1
    assert name == " ".join(["specviz", *command[:words]])
    check_sentence(ValueError(message), begins)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SAVERS)
def test_a_full_disk_leaves_no_part_of_a_file_and_the_old_one_as_it_was(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a benchmark has measured by then stays in its log."""
    for old in ("run", "run.html", "run.csv"):
        (tmp_path / old).write_bytes(b"old")
    full(monkeypatch)
    with pytest.raises((OSError, ValueError)) as caught:
        SAVERS[name](tmp_path / "run")
    check_sentence(
        caught.value, rf"{tmp_path}/run\S*: cannot be written \(No space left on device\)"
    )
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    log = left.pop("run.jsonl.partial", None)
    assert left == dict.fromkeys(("run", "run.html", "run.csv"), b"old")
    assert (log is not None) == (name == "bench")


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    """A half-written one never takes the name, and what was left of it does not get in the way."""
    folder = tmp_path / "target"

    def fill(partial: Path, content: str, fails: bool = False) -> None:
        partial.mkdir()
        (partial / "weights").write_text(content)
        if fails:
            raise OSError(errno.ENOSPC, "No space left on device")

    write_folder(folder, lambda partial: fill(partial, "old"))
    with pytest.raises(OSError, match="No space left"):
        write_folder(folder, lambda partial: fill(partial, "half", fails=True))
    assert (folder / "weights").read_text() == "old"
    write_folder(folder, lambda partial: fill(partial, "new"))
    assert (folder / "weights").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
