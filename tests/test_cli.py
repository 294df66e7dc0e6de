"""The command line in process: what it prints, what it writes, and how it refuses."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import specviz as sv
from specviz.cli.main import main
from specviz.zoo.corpus import SourceFile
from specviz.zoo.data import VOCABULARY
from specviz.zoo.measure import WINDOW, bits_per_byte
from specviz.zoo.train import build_model

GENERATE = sv.generate
COMMANDS = ("demo", "generate", "replay", "bench", "cost", "train", "evaluate", "study")
STUDIES = (
    "survey", "agreement", "couplings", "losses", "overhead", "moves", "ceilings", "simulate",
    "figures",
)  # fmt: skip
Captured = pytest.CaptureFixture[str]


def table_in(text: str, first_column: str) -> list[dict[str, str]]:
    """The rows of the printed table whose header begins with `first_column`, as text."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.split()[:1] == [first_column])
    names, rows = lines[begin].split(), []
    for line in lines[begin + 1 :]:
        if len(line.split()) != len(names):
            break
        rows.append(dict(zip(names, line.split(), strict=True)))
    return rows


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
    path, prompts = tmp_path / "run.safetensors", ["def add(a, b):\n", "class Stack:"]
    options = [
        "--strategy",
        "eqspec",
        "--num-draft-tokens",
        "3",
        "--max-new-tokens",
        "4",
        "--batch-size",
        "1",
        "--device",
        "cpu",
    ]
    assert main(["generate", *prompts, *options, "--record", str(path)]) == 0
    printed, trace = capsys.readouterr().out, sv.Trace.load(path)
    for i, prompt in enumerate(prompts):
        assert (
            f"{prompt}▸{''.join(trace.text(token) for token in trace.output(i) if token != 2)}\n"
            in printed
        )
    assert table_in(printed, "strategy")[0]["num_draft_tokens"] == "3"
    assert (trace.meta["batch_size"], trace.requests["budget"].tolist()) == (1, [4, 4])


def test_generate_without_recording_writes_nothing(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "import os", "--max-new-tokens", "2", "--device", "cpu"]) == 0
    assert table_in(capsys.readouterr().out, "strategy")[0]["strategy"] == "inplace"
    assert list(tmp_path.iterdir()) == []


def test_generate_compiles_and_captures_what_it_can(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    asked = []
    monkeypatch.setattr(
        sv,
        "generate",
        lambda *_, **options: asked.append(options) or GENERATE(*_, **options | {"compile": False}),
    )
    with pytest.warns(UserWarning, match="nothing is captured, since the pair is on cpu"):
        assert (
            main(
                [
                    "generate",
                    "import os",
                    "--max-new-tokens",
                    "2",
                    "--device",
                    "cpu",
                    "--graphs",
                    "--compile",
                ]
            )
            == 0
        )
    assert main(["generate", "import os", "--max-new-tokens", "2", "--device", "cpu"]) == 0
    assert [(options["graphs"], options["compile"]) for options in asked] == [
        (None, True),
        (False, False),
    ]
    assert "tokens_per_s" in capsys.readouterr().out


def test_generate_samples_with_the_drafter_that_is_named(
    embedded: sv.Pair, tmp_path: Path, capsys: Captured
) -> None:
    path, prompts, sampling = (
        tmp_path / "run.safetensors",
        ["def add(a, b):\n", "class Stack:"],
        sv.SamplingParams(0.9, 20, 0.95, "gumbel"),
    )
    options = [
        "--temperature",
        "0.9",
        "--top-k",
        "20",
        "--top-p",
        "0.95",
        "--coupling",
        "gumbel",
        "--seed",
        "3",
        "--drafter",
        "lookup",
    ]
    options += ["--max-new-tokens", "6", "--device", "cpu", "--record", str(path)]
    assert main(["generate", *prompts, *options, "--deterministic"]) == 0
    same = {
        "drafter": "lookup",
        "sampling": sampling,
        "seed": 3,
        "max_new_tokens": 6,
        "deterministic": True,
    }
    expected, trace = sv.generate(embedded, prompts, **same, progress=False), sv.Trace.load(path)
    assert [trace.output(i) for i in range(2)] == expected.tokens
    recorded = ("drafter", "sampling", "seed", "deterministic")
    assert {name: trace.meta[name] for name in recorded} == {
        name: expected.meta[name] for name in recorded
    }
    assert f"{prompts[1]}▸{expected.texts[1]}\n" in capsys.readouterr().out


def test_sampling_is_by_rejection_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    assert (
        main(
            [
                "generate",
                "import os",
                "--max-new-tokens",
                "2",
                "--device",
                "cpu",
                "--temperature",
                "0.5",
                "--record",
                str(path),
            ]
        )
        == 0
    )
    meta = sv.Trace.load(path).meta
    assert meta["sampling"] == {
        "temperature": 0.5,
        "top_k": None,
        "top_p": None,
        "coupling": "rejection",
    }
    assert (meta["drafter"], meta["seed"], meta["deterministic"]) == ("model", 0, False)


def test_a_missing_library_ends_with_2_and_the_remedy(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specviz.engine.models.pair.is_accelerate_available", lambda: False)
    assert main(["generate", "x", "--device-map", "auto"]) == 2
    printed = capsys.readouterr()
    needs = (
        "device_map='auto' needs accelerate, which is not installed; "
        'run: pip install "specviz[accelerate]"'
    )
    assert (printed.out, printed.err) == ("", f"specviz generate: {needs}\n")


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (
            ["generate", "x", "--strategy", "eqspek"],
            "specviz generate: strategy='eqspek' is unknown; choose one of autoregressive, ",
        ),
        (["generate", "x", "--device", "tpu"], "specviz generate: device='tpu' is unknown; "),
        (["generate", "x", "--dtype", "int8"], "specviz generate: dtype='int8' is unknown; "),
        (
            ["generate", "x", "--batch-size", "0"],
            "specviz generate: batch_size must be an int >= 1, got 0; ",
        ),
        (
            ["generate", "x", "--target", "."],
            "specviz generate: --target . needs a draft; give --draft too",
        ),
        (
            ["generate", "x", "--draft", "."],
            "specviz generate: --draft . needs a target; give --target too",
        ),
        (
            ["evaluate", "--draft", "."],
            "specviz evaluate: --draft . needs a target; give --target too",
        ),
        (
            ["generate", "x", "--target", "./no", "--draft", "./no"],
            "specviz generate: target='./no' is not a folder that holds a model",
        ),
        (["generate", ""], "specviz generate: prompts[0]='' is empty; "),
        (["demo", "--limit", "0"], "specviz demo: limit must be an int >= 1, got 0; "),
        (
            ["generate", "x", "--drafter", "eagle"],
            "specviz generate: drafter='eagle' is unknown; choose one of lookup, model, ",
        ),
        (
            ["generate", "x", "--temperature", "0"],
            "specviz generate: temperature must be a number from 1e-05 to 100000.0, got 0.0",
        ),
        (
            ["generate", "x", "--temperature", "1", "--coupling", "max"],
            "specviz generate: coupling='max' is unknown; ",
        ),
        (
            ["generate", "x", "--top-k", "5"],
            "specviz generate: --top-k 5 needs a temperature; give --temperature too",
        ),
        (
            ["generate", "x", "--top-p", "1"],
            "specviz generate: --top-p 1.0 needs a temperature; give --temperature too",
        ),
        (
            ["generate", "x", "--coupling", "gumbel"],
            "specviz generate: --coupling gumbel needs a temperature; give --temp",
        ),
        (["generate", "x", "--seed", "-1"], "specviz generate: seed must be an int >= 0, got -1; "),
        (
            ["study", "survey", "--device-map", "everywhere"],
            "specviz study survey: device_map='everywhere' is unknown; choose one of auto, ",
        ),
        (
            ["study", "survey", "--limit", "0"],
            "specviz study survey: limit must be an int >= 1, got 0; ",
        ),
        (
            ["study", "agreement", "--device-map", "auto", "--device", "cpu"],
            "specviz study agreement: device='cpu' and device_map='auto' exclude ",
        ),
        (
            ["study", "agreement", "--strategies", "repadding"],
            "specviz study agreement: strategies names 'repadding', which does not promise ",
        ),
        (
            ["study", "agreement", "--spec-bench", "none.jsonl"],
            "specviz study agreement: path='none.jsonl' is not a file; ",
        ),
        (
            ["study", "agreement", "--limit", "0"],
            "specviz study agreement: limit must be an int >= 1, got 0; ",
        ),
        (
            ["study", "agreement", "--max-prompt-tokens", "0"],
            "specviz study agreement: max_prompt_tokens must be an int >= 1, got 0; ",
        ),
        (
            ["study", "agreement", "--batch-sizes", "2", "0"],
            "specviz study agreement: batch_sizes[1] must be an int >= 1, got 0; ",
        ),
        (
            ["study", "couplings", "--temperatures", "1", "0"],
            "specviz study couplings: temperature must be a number from 1e-05 to 100000.0, got 0.0",
        ),
        (
            ["study", "couplings", "--seeds", "-1"],
            "specviz study couplings: seeds[0] must be an int >= 0, got -1; ",
        ),
        (["evaluate", "--dtype", "int8"], "specviz evaluate: dtype='int8' is unknown; "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_ends_with_2_and_one_line(
    arguments: list[str], begins: str, capsys: Captured
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(begins)
    assert printed.err.count("\n") == 1


def test_a_file_that_cannot_be_written_ends_with_1_and_one_line(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "run", tmp_path):
        assert (
            main(
                ["generate", "x", "--max-new-tokens", "1", "--device", "cpu", "--record", str(path)]
            )
            == 1
        )
        errors = [
            line
            for line in capsys.readouterr().err.splitlines()
            if line.startswith("specviz generate: ")
        ]
        assert len(errors) == 1
        assert str(path.parent if path.name == "run" else path) in errors[0]


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


def test_moves_prints_and_writes_its_table(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "moves.csv"
    assert (
        main(
            ["study", "moves", "--device", "cpu", "--rows", "2", "--slots", "16", "--out", str(out)]
        )
        == 0
    )
    assert "double_buffer_ms" in capsys.readouterr().out
    assert pd.read_csv(out)["rows"].tolist() == [2]
    assert json.loads(out.with_suffix(".json").read_text())["device"] == "cpu"


def test_bits_per_byte_of_one_file(embedded: sv.Pair) -> None:
    """A uniform model needs log2 V bits for each token but the first.

    The embedded model, trained on Python, needs fewer.
    """
    text = (
        "import os\n\n\ndef read(path):\n    with open(path) as file:\n        return file.read()\n"
        * 30
    )  # more than one window
    file = SourceFile("a.py", text, held_out=True, is_test=False)
    tokens = (
        sum(len(ids) for ids in embedded.tokenizer(file.blocks)["input_ids"]) + len(file.blocks) - 1
    )  # eos ends, one bos is given
    expected = tokens * np.log2(VOCABULARY) / sum(len(block.encode()) for block in file.blocks)
    blank = build_model(layers=1, hidden_size=8, heads=1, kv_heads=1, mlp=8)
    torch.nn.init.zeros_(blank.lm_head.weight)
    assert tokens > WINDOW
    assert bits_per_byte(blank, embedded.tokenizer, [file]) == pytest.approx(expected)
    assert 0 < bits_per_byte(embedded.target, embedded.tokenizer, [file]) < expected


def test_replay_makes_a_page_of_a_saved_run(tmp_path, capsys):
    run, page = tmp_path / "run.safetensors", tmp_path / "run.html"
    assert (
        main(
            [
                "generate",
                "def add(a, b):",
                "--device",
                "cpu",
                "--max-new-tokens",
                "4",
                "--record",
                str(run),
            ]
        )
        == 0
    )
    assert main(["replay", str(run), "--step", "4"]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "open it in a browser" in capsys.readouterr().out
    page.unlink()
    assert main(["replay", str(run), "-o", str(tmp_path / "run.gif")]) == 2
    assert "out must end in one of" in capsys.readouterr().err
    assert main(["replay", str(run), "--step", "10000"]) == 2
    assert "step must be an int from 0 to 4, got 10000" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none.safetensors")]) == 2
    assert "none.safetensors" in capsys.readouterr().err
    assert not page.exists()
