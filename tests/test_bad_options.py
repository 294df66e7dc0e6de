"""Every option of every command and study with about twenty wrong texts.

Each is refused in one sentence, with the exit status of a misuse, before a model is loaded or any
measurement begins, and leaves no file. The options are found in the parsers, so a new one is swept
as soon as it is there.
"""

import argparse
import contextlib
import io
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from bad_values import NOWHERE, WorkBeganError, fault_of_sentence
from good_calls import COLUMNS, KEPT, WEIGHTS
from test_bad_values import clear, forbid_work
from tiny_run import TRACE

from specviz.cli.main import COMMANDS, STUDIES, main
from specviz.costs.shapes import ITEMSIZE
from specviz.engine.models.pair import DTYPES
from specviz.simulation import AcceptanceTable
from specviz.studies.arguments import DTYPE_NAMES, file_path
from specviz.util.files import write

HUGE = "1" + "0" * 400
TEXTS = (
    "", " ", "a", "a\nb", "a,b", "0", "-1", "1.5", "nan", "inf", "1e999", "True", "None",
    "[]", "{}", "[1]", "0x10", HUGE, "\udcff", "missing/deep", str(NOWHERE),
)  # fmt: skip
ALL = {**COMMANDS, **{f"study {name}": entry for name, entry in STUDIES.items()}}
OUTPUTS = str(write(KEPT / "outputs.jsonl", b'{"token_ids": [1]}\n'))
PAGES = Path(__file__).parent / "data" / "servers"
REQUIRED = {
    "audit": ["--reference", OUTPUTS, "--candidate", OUTPUTS],
    "metrics": [str(PAGES / "vllm.prom"), "--shapes", "qwen3-8b/0.6b"],
    "simulate": ["--shapes", "qwen3-8b/0.6b", "--alpha", "0.5", "--prompt-tokens", "8"],
    "replay": ["run.safetensors"],
    "generate": ["--temperature", "1"],
    "study selection": ["--table", str(AcceptanceTable(**COLUMNS).save(KEPT / "swept"))],
}
# Arguments that stand in the place of what is required.
SOLE = ("run_file", "source", "runs")
# Options without which another one makes no sense.
WITH = {
    "target": ["--draft", str(WEIGHTS / "draft")],
    "audit --target": [],
    "draft": ["--target", str(WEIGHTS / "target")],
    "gpus": ["--ray"],
    "head_steps": ["--heads", "medusa"],
    "lines": ["--check"],
    "cpus": ["--ray"],
}
# How a sentence may call an option besides.
ALIASES = {
    "strategies": ("strategy",),
    "policies": ("strategy",),
    "spec_bench": ("path",),
    "log": ("path",),
}
# What an option takes after all, by its command and name or by its name alone.
ANY = set(TEXTS)
FILES = ANY - {"", str(NOWHERE), HUGE}
COUNT = {HUGE}
FITS: dict[str, set[str]] = {
    **dict.fromkeys(("--num-draft-tokens", "--max-new-tokens", "--batch-size"), COUNT),
    **dict.fromkeys(("--batch-sizes", "--repetitions", "--limit", "--prompt-tokens"), COUNT),
    "study packing --extras": COUNT,
    **dict.fromkeys(("study memory --percents", "study chat --percents"), COUNT),
    **dict.fromkeys(("study chat --conversations", "study chat --turns"), COUNT),
    **dict.fromkeys(("--max-prompt-tokens", "--top-k", "--gpus", "--cpus"), COUNT),
    **dict.fromkeys(("--target-steps", "--draft-steps", "--continuations"), COUNT),
    "--head-steps": COUNT,
    "--seed": {"0", HUGE},
    "--seeds": {"0", HUGE},
    "--temperature": {"1.5"},
    "--temperatures": {"1.5"},
    "--memory-gb": {"1.5"},
    "--step": {"0"},
    "--rates": {"0"},
    "generate prompts": ANY - {"", "\udcff"},
    "generate --record": FILES,
    "--ray": ANY,
    "--rate": {"1.5"},
    "--alpha": {"0"},
    "demo --out": FILES,
    "study tables --out": FILES,
    "study tables --depth": set(),
    "study selection --batch-sizes": set(),
    "study trees --temperature": {"1.5"},
    "study heads --budget": {"1.5"},
    "study heads --out": FILES,
    "study laws --out": FILES,
    "study selection --num-draft-tokens": set(),
    "train --out": FILES,
    "bench --repetitions": set(),
    "bench --limit": set(),
    "bench --out": FILES,
    "bench --report": FILES,
    "audit --report": FILES,
    "audit --concurrency": set(),
    "audit --max-new-tokens": set(),
    "audit --timeout": {"1.5"},
    "audit --outputs": ANY - {""},  # only used with a server
    "audit --model": ANY,
    "audit --num-draft-tokens": {"0", HUGE},
    "study figures --out": FILES,
    "study schematics --out": FILES,
    "metrics --timeout": {"1.5"},
    "metrics --batch-sizes": set(),
    "simulate --batch-sizes": set(),
    "simulate --num-draft-tokens": set(),
    "simulate --prompt-tokens": set(),
    "simulate --max-new-tokens": set(),
    "simulate --requests": set(),
    "metrics --prompt-tokens": set(),
    "metrics --max-new-tokens": set(),
}


def options() -> list[tuple[str, str, argparse.Action]]:
    """Command, option and action of each option that takes a value, and of each argument."""
    found = []
    for command, (module, _) in ALL.items():
        parser = argparse.ArgumentParser()
        import_module(module).add_arguments(parser)
        for action in parser._actions:
            if action.nargs != 0:
                found.append((command, (action.option_strings or [action.dest])[0], action))
    return found


@pytest.fixture(autouse=True)
def swept_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    forbid_work(monkeypatch)
    # For each text of a parser gettext looks for its files, which takes most of the time.
    monkeypatch.setattr(argparse, "_", str)

    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("offline")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", offline)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arguments_of(command: str, option: str, action: argparse.Action, text: str) -> list[str]:
    given = [text] if not action.option_strings else [f"{option}={text}"]
    if action.nargs in ("+", "*") and action.option_strings:
        given = [option, text]
    required = [] if action.dest in SOLE else REQUIRED.get(command, [])
    with_it = WITH.get(f"{command} {option}", WITH.get(action.dest, []))
    required = [*required, *with_it]
    return [*command.split(), *required, *given]


def outcome(command: str, option: str, action: argparse.Action, text: str) -> str:
    """What is wrong with how the command refuses `text`; "" if nothing is, or "accepted"."""
    said = io.StringIO()
    printed = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        try:
            status = main(arguments_of(command, option, action, text))
        except WorkBeganError:
            return "accepted"
        except SystemExit as ended:
            status = ended.code
    if status == 0:
        return "accepted"
    if printed.getvalue():
        return f"prints {printed.getvalue()}"
    line = said.getvalue().strip().splitlines()[-1]
    begins = f"specviz {command}: "
    if not line.startswith(begins):
        return f"says {said.getvalue()}"
    sentence = line.removeprefix(begins).removeprefix("error: ")
    names = (
        *ALIASES.get(action.dest, ()),
        action.dest,
        option.lstrip("-"),
        action.dest.rstrip("s"),
        str(action.metavar),
    )
    if action.type is file_path and len(text) > 3:
        names = (*names, text[:20])  # a sentence about a path may begin with it
    fault = fault_of_sentence(sentence, names, text)
    return "" if fault.startswith("hides") and value_of(text) in sentence else fault


def value_of(text: str) -> str:
    """A text as the number that it is read as, where it is one."""
    try:
        return str(float(text))
    except ValueError:
        return repr(text)[1:-1]


@pytest.mark.sweep(312)
@pytest.mark.parametrize(
    ("command", "option", "action"),
    options(),
    ids=[f"{command} {option}" for command, option, _ in options()],
)
def test_wrong_texts_are_refused(
    command: str, option: str, action: argparse.Action, swept_folder: Path
) -> None:
    fits = FITS.get(f"{command} {option}", FITS.get(option, set()))
    found = []
    for text in TEXTS:
        if command == "replay" and action.dest != "run_file":
            TRACE.save("run.safetensors")
        result = outcome(command, option, action, text)
        left = [name for name in clear(swept_folder) if name != "run.safetensors"]
        if result != "accepted" and left:
            result = f"leaves {left}"
        if result != ("accepted" if text in fits else ""):
            found.append(f"{text[:20]!r}: {result or 'refused'}")
    assert not found, "\n".join(found)


def test_names_that_commands_know_without_torch() -> None:
    assert list(DTYPE_NAMES) == list(DTYPES)
    assert set(ITEMSIZE) == set(DTYPES)
