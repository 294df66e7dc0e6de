"""The command line in process: what it prints, what it writes, and how it refuses."""

import argparse
import json
import runpy
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from specviz.studies.packing import spread
from specviz.zoo.corpus import SourceFile
from specviz.zoo.data import VOCABULARY
from specviz.zoo.measure import WINDOW, bits_per_byte
from specviz.zoo.models import build_model

import specviz as sv
from specviz.cli.exit import end
from specviz.cli.main import main
from specviz.util.files import WriteError

GENERATE = sv.generate
COMMANDS = ("demo", "generate", "replay", "bench", "cost", "train", "evaluate", "study")
STUDIES = (
    "survey", "agreement", "couplings", "losses", "overhead", "moves", "packing", "ceilings",
    "simulate", "figures",
)  # fmt: skip
Captured = pytest.CaptureFixture[str]


def table_in(text: str, first_column: str) -> list[dict[str, str]]:
    """The rows of the printed table whose header begins with `first_column`, as text."""
    lines = [line.split() for line in text.splitlines()]
    begin = next(i for i, words in enumerate(lines) if words[:1] == [first_column])
    names = lines[begin]
    rows = takewhile(lambda words: len(words) == len(names), lines[begin + 1 :])
    return [dict(zip(names, words, strict=True)) for words in rows]


def test_demo_compares_and_records(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "new folder" / "demo.safetensors"
    assert main(["demo", "--limit", "2", "--out", str(path)]) == 0
    printed = capsys.readouterr().out
    rows = table_in(printed, "strategy")
    assert [row["strategy"] for row in rows] == ["autoregressive", "eqspec", "inplace"]
    assert {row["same_text"] for row in rows} == {"True"}
    assert len({row["new_tokens"] for row in rows}) == 1
    assert str(path) in printed
    trace = sv.Trace.load(path)
    assert (trace.meta["strategy"], trace.num_requests) == ("eqspec", 2)
    assert int(rows[0]["new_tokens"]) == sum(len(trace.output(i)) for i in range(2))


def test_generate_prints_texts_and_records(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "run.safetensors"
    prompts = ["def add(a, b):\n", "class Stack:"]
    options = "--strategy eqspec --num-draft-tokens 3 --max-new-tokens 4 --batch-size 1"
    arguments = [*options.split(), "--device", "cpu", "--record", str(path)]
    assert main(["generate", *prompts, *arguments]) == 0
    printed = capsys.readouterr().out
    trace = sv.Trace.load(path)
    for i, prompt in enumerate(prompts):
        text = "".join(trace.text(token) for token in trace.output(i) if token != 2)
        assert f"{prompt}▸{text}\n" in printed
    assert table_in(printed, "strategy")[0]["num_draft_tokens"] == "3"
    assert (trace.meta["batch_size"], trace.requests["budget"].tolist()) == (1, [4, 4])


SHORT = "generate import --max-new-tokens 2 --device cpu"


def test_generate_without_recording_writes_nothing(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(SHORT.split()) == 0
    assert table_in(capsys.readouterr().out, "strategy")[0]["strategy"] == "inplace"
    assert list(tmp_path.iterdir()) == []


def test_generate_compiles_and_captures_what_it_can(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    asked = []

    def watched(*arguments: object, **options: Any) -> sv.Result:
        asked.append((options["graphs"], options["compile"]))
        return GENERATE(*arguments, **options | {"compile": False})

    monkeypatch.setattr(sv, "generate", watched)
    with pytest.warns(UserWarning, match="nothing is captured, since the pair is on cpu"):
        assert main(f"{SHORT} --graphs --compile".split()) == 0
    assert main(SHORT.split()) == 0
    assert asked == [(None, True), (False, False)]
    assert "tokens_per_s" in capsys.readouterr().out


def test_generate_samples_with_the_drafter_that_is_named(
    embedded: sv.Pair, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "run.safetensors"
    prompts = ["def add(a, b):\n", "class Stack:"]
    options = (
        "--temperature 0.9 --top-k 20 --top-p 0.95 --coupling gumbel --seed 3 --drafter lookup "
        f"--max-new-tokens 6 --device cpu --deterministic --record {path}"
    )
    assert main(["generate", *prompts, *options.split()]) == 0
    sampling = sv.SamplingParams(0.9, 20, 0.95, "gumbel")
    same = {"drafter": "lookup", "sampling": sampling, "seed": 3, "deterministic": True}
    expected = sv.generate(embedded, prompts, max_new_tokens=6, progress=False, **same)
    trace = sv.Trace.load(path)
    assert [trace.output(i) for i in range(2)] == expected.tokens
    for name in same:
        assert trace.meta[name] == expected.meta[name]
    assert f"{prompts[1]}▸{expected.texts[1]}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("strategy", "drafter", "strategy_option", "drafter_option"),
    [
        ("masking:positions=column", "synthetic:rates=0.9/0.8/0.7",
         {"positions": "column"}, {"rates": [0.9, 0.8, 0.7]}),
        ("inplace:refill=false", "tree:width=3", {"refill": False}, {"width": 3}),
    ],
)  # fmt: skip
def test_generate_takes_options_of_a_strategy_and_a_drafter(
    strategy: str, drafter: str, strategy_option: dict, drafter_option: dict, tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    options = f"--strategy {strategy} --drafter {drafter} --num-draft-tokens 3 --record {path}"
    assert main(f"{SHORT} {options}".split()) == 0
    meta = sv.Trace.load(path).meta
    assert meta["strategy"] == strategy.partition(":")[0]
    assert meta["drafter"] == drafter.partition(":")[0]
    assert strategy_option.items() <= meta["strategy_options"].items()
    assert drafter_option.items() <= meta["drafter_options"].items()


def test_sampling_is_by_rejection_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    assert main(f"{SHORT} --temperature 0.5 --record {path}".split()) == 0
    meta = sv.Trace.load(path).meta
    sampling = {"temperature": 0.5, "top_k": None, "top_p": None, "coupling": "rejection"}
    assert meta["sampling"] == sampling
    assert (meta["drafter"], meta["seed"], meta["deterministic"]) == ("model", 0, False)


def test_no_object_is_asked_for_where_none_can_be_passed(capsys: Captured) -> None:
    assert main(["generate", "x", "--selector", "all"]) == 2
    says = "--selector 'all' is unknown; choose one of everything, tetris, threshold"
    assert capsys.readouterr().err == f"specviz generate: {says}\n"


def test_a_missing_library_ends_with_2_and_the_remedy(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specviz.engine.models.places.is_accelerate_available", lambda: False)
    assert main(["generate", "x", "--device-map", "auto"]) == 2
    printed = capsys.readouterr()
    needs = (
        "--device-map 'auto' needs accelerate, which is not installed; "
        'run: pip install "specviz[accelerate]"'
    )
    assert (printed.out, printed.err) == ("", f"specviz generate: {needs}\n")


@pytest.mark.parametrize(
    ("command", "options", "begins"),
    [
        ("generate", "--strategy eqspek", "--strategy 'eqspek' is unknown; choose one of auto"),
        ("generate", "--device tpu", "--device 'tpu' is unknown; "),
        ("generate", "--dtype int8", "--dtype 'int8' is unknown; "),
        ("generate", "--batch-size 0", "--batch-size must be an int >= 1, got 0; "),
        ("generate", "--target .", "--target . needs a draft; give --draft too"),
        ("generate", "--draft .", "--draft . needs a target; give --target too"),
        (
            "generate",
            "--target ./no --draft ./no",
            "--target './no' is not a folder that holds a model",
        ),
        ("generate", "--drafter eagle", "--drafter 'eagle' is unknown; choose one of clover"),
        ("generate", "--drafter tree:width", "the options in 'tree:width' must be option=value, "),
        (
            "generate",
            "--strategy exspec:a=1",
            "--strategy 'exspec' takes no option 'a'; its options",
        ),
        (
            "cost",
            "--strategy exspec:name=1",
            "--strategy 'exspec' takes no option 'name'; its opti",
        ),
        (
            "generate",
            "--temperature 0",
            "--temperature must be a number from 1e-05 to 100000.0, got 0.0; pass one, or leave "
            "--temperature out for greedy decoding",
        ),
        ("generate", "--temperature 1 --coupling max", "--coupling 'max' is unknown; "),
        ("generate", "--top-k 5", "--top-k 5 needs a temperature; give --temperature too"),
        ("generate", "--top-p 1", "--top-p 1.0 needs a temperature; give --temperature too"),
        ("generate", "--coupling gumbel", "--coupling gumbel needs a temperature; give --temp"),
        ("generate", "--seed -1", "--seed must be an int >= 0, got -1; "),
        ("demo", "--limit 0", "--limit must be an int >= 1, got 0; "),
        ("evaluate", "--draft .", "--draft . needs a target; give --target too"),
        ("evaluate", "--limit 0", "--limit must be an int >= 1, got 0; "),
        (
            "study survey",
            "--device-map everywhere",
            "--device-map 'everywhere' is unknown; choose one of auto, ",
        ),
        ("study survey", "--limit 0", "--limit must be an int >= 1, got 0; "),
        (
            "study agreement",
            "--device-map auto --device cpu",
            "--device 'cpu' and --device-map 'auto' exclude ",
        ),
        (
            "study agreement",
            "--strategies repadding",
            "--strategies names 'repadding', which does not promise ",
        ),
        ("study agreement", "--spec-bench none.jsonl", "path='none.jsonl' is not a file; "),
        ("study agreement", "--limit 0", "--limit must be an int >= 1, got 0; "),
        ("study couplings", "--seeds -1", "--seeds must be an int >= 0, got -1; "),
    ],
)
def test_a_wrong_argument_ends_with_2_and_one_line(
    command: str, options: str, begins: str, capsys: Captured
) -> None:
    prompts = ["x"] if command == "generate" else []
    assert main([*command.split(), *prompts, *options.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"specviz {command}: {begins}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, ""),
        (KeyboardInterrupt(), 130, "specviz x: interrupted; the table is kept\n"),
        (KeyboardInterrupt("2 prompts left"), 130, "specviz x: interrupted; 2 prompts left\n"),
        (WriteError("a.csv: no room"), 1, "specviz x: a.csv: no room\n"),
        (MemoryError("one row\nis too much"), 1, "specviz x: one row is too much\n"),
        (ValueError("no such device"), 2, "specviz x: no such device\n"),
        (ImportError("no ray"), 2, "specviz x: no ray\n"),
        (FileNotFoundError(2, "No such file", "a.csv"), 2, "[Errno 2] No such file: 'a.csv'\n"),
    ],
)
def test_a_shell_can_tell_the_ways_to_end_apart(
    error: BaseException | None, status: int, said: str, capsys: Captured
) -> None:
    def run() -> None:
        if error is not None:
            raise error

    options = argparse.Namespace(command="specviz x", kept=lambda _: "the table is kept")
    assert end(options, run) == status
    printed = capsys.readouterr()
    assert (printed.out, printed.err.endswith(said)) == ("", True)
    assert printed.err.count("\n") == (status != 0)


def test_a_file_that_cannot_be_written_ends_with_1_and_one_line(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "file").touch()
    for path, named in ((tmp_path / "file" / "run", tmp_path / "file"), (tmp_path, tmp_path)):
        assert main(f"{SHORT} --record {path}".split()) == 1
        printed = capsys.readouterr().err.splitlines()
        (error,) = (line for line in printed if line.startswith("specviz generate: "))
        assert str(named) in error


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["decode"],
        ["demo", "--limit", "two"],
        ["generate", "--no-such-option"],
        ["study"],
        ["study", "demo"],
        *(["study", name, "--out", "found.json"] for name in ("survey", "agreement", "couplings")),
    ],
    ids=" ".join,
)
def test_what_cannot_be_parsed_ends_with_2(arguments: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: specviz" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], *([name] for name in COMMANDS), *(["study", name] for name in STUDIES)],
    ids=lambda arguments: " ".join(arguments) or "all",
)
def test_help_lists_every_command_and_explains_each(arguments: list[str], capsys: Captured) -> None:
    listed = {"": COMMANDS, "study": STUDIES}.get(" ".join(arguments), ())
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: specviz")
    assert [name for name in listed if f"\n    {name}" not in printed] == []


def test_version_is_that_of_the_package(capsys: Captured) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"specviz {sv.__version__}\n"


def test_python_runs_the_package_as_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("sys.argv", ["specviz", "replay", "no/such/file"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("specviz", run_name="__main__")
    assert capsys.readouterr().err.startswith("specviz replay: ")


def test_moves_prints_and_writes_its_table(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "moves.csv"
    assert main(f"study moves --device cpu --rows 2 --slots 16 --out {out}".split()) == 0
    assert "double_buffer_ms" in capsys.readouterr().out
    assert pd.read_csv(out)["rows"].tolist() == [2]
    assert json.loads(out.with_suffix(".json").read_text())["device"] == "cpu"


def test_packing_prints_and_writes_its_table(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "packing.csv"
    sizes = "--batch-sizes 4 --num-draft-tokens 2 --extras 3 --repetitions 1"
    assert main(f"study packing {sizes} --out {out}".split()) == 0
    assert "packed_ms" in capsys.readouterr().out
    (row,) = pd.read_csv(out).to_dict("records")
    assert row["filling"] == pytest.approx(0.5), "four rows of 3 tokens in a rectangle of 4 x 6"
    assert min(row["uniform_ms"], row["rectangle_ms"], row["packed_ms"]) > 0


@pytest.mark.parametrize(("rows", "k", "extra"), [(1, 3, 2), (2, 1, 1), (8, 3, 2), (32, 5, 4)])
def test_spread_drafts_are_k_a_row_on_average(rows: int, k: int, extra: int) -> None:
    lengths = spread(rows, k, extra)
    assert sum(lengths) == k * rows
    assert set(lengths) <= set(range(k + extra + 1))
    assert rows == 1 or len(set(lengths)) > 1


def test_bits_per_byte_of_one_file(embedded: sv.Pair) -> None:
    """A uniform model needs log2 V bits for each token but the first.

    The embedded model, trained on Python, needs fewer.
    """
    function = "def read(path):\n    with open(path) as file:\n        return file.read()\n"
    text = f"import os\n\n\n{function}" * 30  # more than one window
    file = SourceFile("a.py", text, held_out=True, is_test=False)
    ids = embedded.tokenizer(file.blocks)["input_ids"]
    tokens = sum(map(len, ids)) + len(file.blocks) - 1  # eos ends, one bos is given
    expected = tokens * np.log2(VOCABULARY) / sum(len(block.encode()) for block in file.blocks)
    blank = build_model(layers=1, hidden_size=8, heads=1, kv_heads=1, mlp=8)
    torch.nn.init.zeros_(blank.lm_head.weight)
    assert tokens > WINDOW
    assert bits_per_byte(blank, embedded.tokenizer, [file]) == pytest.approx(expected)
    assert 0 < bits_per_byte(embedded.target, embedded.tokenizer, [file]) < expected


def test_evaluate_takes_a_limit_and_shows_how_far_it_is(
    embedded: sv.Pair, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [SourceFile(f"{n}.py", "import os\n", held_out=True, is_test=n > 1) for n in range(3)]
    monkeypatch.setattr("specviz.zoo.measure.read_corpus", lambda: files)
    monkeypatch.setattr("specviz.cli.evaluate.load_models", lambda _: embedded)
    assert main(["evaluate", "--limit", "2", "--max-new-tokens", "2"]) == 0
    printed = capsys.readouterr()
    assert "held-out library (2 files)" in printed.out
    assert "| 0/2 [" in printed.err
    assert printed.err.count("bits per byte: 100%") == 4


def test_replay_makes_a_page_of_a_saved_run(tmp_path: Path, capsys: Captured) -> None:
    run = tmp_path / "run.safetensors"
    page = tmp_path / "run.html"
    assert main(f"{SHORT} --record {run}".split()) == 0
    kilobytes = f"{run.stat().st_size / 1e3:.1f} kB"
    assert f"Trace(inplace, 1 request, 1 round) saved as {run} ({kilobytes})\n" in (
        capsys.readouterr().out
    )
    assert main(["replay", str(run), "--step", "4"]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "open it in a browser" in capsys.readouterr().out
    page.unlink()
    for arguments, said in (
        (f"{run} -o {tmp_path / 'run.gif'}", "out must end in one of"),
        (f"{run} --step 10000", "step must be an int from 0 to 4, got 10000"),
        (f"{tmp_path / 'none.safetensors'}", "none.safetensors"),
    ):
        assert main(["replay", *arguments.split()]) == 2
        assert said in capsys.readouterr().err
    assert not page.exists()
