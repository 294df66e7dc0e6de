"""The command line in process: what it prints, what it writes, and how it refuses."""

import re
import subprocess
import sys
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import specviz as sv
from specviz.cli.exit import NOTHING_KEPT, end, keeping
from specviz.cli.main import COMMANDS, main, options_of
from specviz.util.files import WriteError

GENERATE = sv.generate
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
    monkeypatch.setattr("specviz.engine.models.pair.is_accelerate_available", lambda: False)
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
        (KeyboardInterrupt(), 130, f"specviz x: interrupted; {NOTHING_KEPT}\n"),
        (KeyboardInterrupt("2 prompts left"), 130, "specviz x: interrupted; 2 prompts left\n"),
        (WriteError("a.csv: no room"), 1, "specviz x: a.csv: no room\n"),
        (MemoryError("one row\nis too much"), 1, "specviz x: one row is too much\n"),
        (ValueError("batch_size=0 is"), 2, "specviz x: --batch-size 0 is\n"),
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

    assert end("specviz x", {"batch_size": "--batch-size"}, run) == status
    printed = capsys.readouterr()
    assert (printed.out, printed.err.endswith(said)) == ("", True)
    assert printed.err.count("\n") == (status != 0)


def test_an_interruption_says_what_it_leaves() -> None:
    for error, said in ((KeyboardInterrupt(), "the table is kept"), (KeyboardInterrupt("x"), "x")):
        with (
            pytest.raises(KeyboardInterrupt, match=f"^{said}$"),
            keeping(lambda: "the table is kept"),
        ):
            raise error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "specviz: a command is missing; choose one of demo, "),
        (["generat"], "specviz: 'generat' is no command; did you mean generate?"),
        (["demo", "--limit", "two"], "Error parsing --limit: invalid literal for int()"),
        (["generate", "--no-such-option"], "Unrecognized options: --no-such-option"),
        (["generate", "--dtype", "int8"], "invalid choice 'int8' for argument '--dtype'"),
        (["replay"], "Missing"),
    ],
)
def test_what_cannot_be_parsed_ends_with_2(
    arguments: list[str], said: str, capsys: Captured
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in " ".join(re.sub("[│╭╮╰╯─]", " ", printed.err).split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option_of_every_command(command: str, capsys: Captured) -> None:
    assert main([command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: specviz {command}")
    function = getattr(import_module(f"specviz.cli.{command}"), command)
    assert [each for each in options_of(function).values() if each not in printed] == []
    assert "(default: None)" not in printed


def test_the_command_alone_lists_all(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name}" in printed for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"specviz {sv.__version__}\n"


def test_help_loads_no_torch() -> None:
    code = "import sys; from specviz.cli.main import main; main(['--help'])"
    code += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def test_a_file_that_cannot_be_written_ends_with_1_and_one_line(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "file").touch()
    for path, named in ((tmp_path / "file" / "run", tmp_path / "file"), (tmp_path, tmp_path)):
        assert main(f"{SHORT} --record {path}".split()) == 1
        printed = capsys.readouterr().err.splitlines()
        (error,) = (line for line in printed if line.startswith("specviz generate: "))
        assert str(named) in error


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
