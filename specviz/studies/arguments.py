"""Arguments that several commands share, their checks, and the pair that they name.

A command checks all that it is given before it does anything, and what needs no torch before it
imports torch. So `add_arguments` and the checks stand in modules that do not import it.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.engine.names import AUTO, check_device_map
from specviz.util.files import check_writable, is_file
from specviz.util.validate import (
    is_list,
    quoted_path,
    require_choice,
    require_int,
    short,
    shown_path,
)

if TYPE_CHECKING:
    from specviz.engine.models.pair import Pair

DEVICES = "cpu, cuda, cuda:1 (CUDA where there is one)"
DTYPE_NAMES = ("float32", "bfloat16", "float16", "float64")
DTYPES = "float32, bfloat16, float16 or float64"
SHAPES = "qwen3-8b/0.6b, vicuna-7b/68m or glm4-9b/0.6b"


def add_target_and_draft(parser: argparse.ArgumentParser) -> None:
    """Add --target and --draft."""
    parser.add_argument("--target", help="hub id or folder of the target (the embedded pair)")
    parser.add_argument("--draft", help="hub id or folder of the draft")


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add the options from which `load_models` loads a pair."""
    add_target_and_draft(parser)
    parser.add_argument("--device", help=DEVICES)
    add_device_map(parser)
    parser.add_argument("--dtype", help=DTYPES)


def add_device_map(parser: argparse.ArgumentParser) -> None:
    """Add --device-map."""
    text = "spread a large target over several GPUs, without --device: auto, balanced, sequential"
    parser.add_argument("--device-map", help=text)


def integer(text: str) -> int:
    """Return `text` as an int. Raise ArgumentTypeError if it is none."""
    try:
        return int(text)
    except ValueError:
        raise _unreadable("an int", text, "5") from None


def number(text: str) -> float:
    """Return `text` as a float. Raise ArgumentTypeError if it is none."""
    try:
        return float(text)
    except ValueError:
        raise _unreadable("a number", text, "0.5") from None


def int_or_word(text: str) -> int | str:
    """Return `text` as an int if it is one."""
    return integer(text) if text.lstrip("-").isdecimal() else text


def file_path(name: str) -> Path:
    """Return the path of that name. Raise ArgumentTypeError if it is empty."""
    if not name:
        raise _unreadable("a path", name, "runs/new")
    return Path(name)


def csv_file(name: str) -> Path:
    """Return the path of a CSV file. Raises ArgumentTypeError if its name ends otherwise."""
    path = Path(name)
    if path.suffix != ".csv":  # the conditions go to the same name with .json
        raise argparse.ArgumentTypeError(
            f"must be the name of a .csv file, got {short(name)}; pass for instance table.csv"
        )
    return path


def _unreadable(kind: str, text: str, example: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(
        f"must be {kind}, got {short(text)}; pass for instance {example}"
    )


def add_lengths(
    parser: argparse.ArgumentParser,
    *,
    draft_tokens: Callable[[str], int | str] = integer,
    max_new_tokens: int = 64,
) -> None:
    """Add --num-draft-tokens, read by `draft_tokens`, and --max-new-tokens."""
    words = "" if draft_tokens is integer else ", or auto"
    text = f"draft tokens a row and round{words} (%(default)s)"
    parser.add_argument("--num-draft-tokens", type=draft_tokens, default=5, metavar="K", help=text)
    text = "(%(default)s)"
    parser.add_argument(
        "--max-new-tokens", type=integer, default=max_new_tokens, metavar="N", help=text
    )


def lengths(options: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_lengths` added, as arguments."""
    names = ("num_draft_tokens", "max_new_tokens")
    return {name: getattr(options, name) for name in names}


def add_repetitions(parser: argparse.ArgumentParser) -> None:
    """Add --repetitions."""
    text = "interleaved; the table shows medians (%(default)s)"
    parser.add_argument("--repetitions", type=integer, default=3, metavar="N", help=text)


def add_spec_bench(parser: argparse.ArgumentParser) -> None:
    """Add --spec-bench."""
    text = "SpecBench's question.jsonl (the bundled prompts)"
    parser.add_argument("--spec-bench", type=file_path, metavar="PATH", help=text)


def add_fresh(parser: argparse.ArgumentParser) -> None:
    """Add --fresh."""
    text = "discard the results that the file holds"
    parser.add_argument("--fresh", action="store_true", help=text)


def add_out(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add --out: the CSV file of a table. `default` describes the file written without it."""
    text = "CSV file for the table; the conditions go next to it, to .json"
    if default is not None:
        text += f" ({default})"
    parser.add_argument("--out", type=csv_file, help=text)


def check_target_and_draft(options: argparse.Namespace) -> None:
    """Raise ValueError or FileNotFoundError if only one of --target and --draft is given, or if one
    is neither a model's folder nor a hub id.
    """
    if options.target is not None and options.draft is None:
        raise ValueError(f"--target {shown_path(options.target)} needs a draft; give --draft too")
    if options.draft is not None and options.target is None:
        raise ValueError(f"--draft {shown_path(options.draft)} needs a target; give --target too")
    for role in ("target", "draft"):
        check_model(role, getattr(options, role))


def check_model(role: str, name: str | None) -> None:
    """Raise ValueError or FileNotFoundError for a name that no model can have. None is accepted."""
    if name is not None:
        from specviz.engine.models.hub import check_name

        check_name(role, name)


def check_models(options: argparse.Namespace) -> None:
    """Raise ValueError for what is wrong in the options of `add_models` without looking at models.

    `load_models` checks the rest.
    """
    check_target_and_draft(options)
    check_device(options.device)
    if options.dtype is not None:
        require_choice("dtype", options.dtype, DTYPE_NAMES)
    if options.device_map is not None:
        check_device_map(options.device_map, options.device)


def check_device(name: str | None) -> None:
    """Raise ValueError for a device that no machine has. `find_device` looks at this machine."""
    if name is not None and not re.fullmatch(r"(cpu|mps)(:0)?|cuda(:\d+)?", name):
        raise ValueError(f"device={short(name)} is unknown; choose one of cpu, cuda, cuda:1, mps")


def check_dtypes(names: object) -> None:
    """Raise ValueError unless these are names of dtypes, one or more."""
    if not is_list(names) or not names or not all(name in DTYPE_NAMES for name in names):
        raise ValueError(
            f"dtypes must be of {', '.join(DTYPE_NAMES)}, got {short(names)}; name one or more"
        )


def check_counts(options: argparse.Namespace, *names: str, minimum: int = 1) -> None:
    """Raise ValueError unless these options hold ints >= `minimum`: each one, a list of them, or
    None. Where `int_or_word` reads an option, "auto" will do, too.
    """
    for name in names:
        value = getattr(options, name)
        values = dict(enumerate(value)) if isinstance(value, list) else {None: value}
        for place, each in values.items():
            called = name if place is None else f"{name}[{place}]"
            if isinstance(each, str) and each != AUTO:
                raise ValueError(
                    f"{called} must be an int >= {minimum} or {AUTO!r}, got {short(each)}; "
                    f"pass for instance 5, or {AUTO!r}"
                )
            if each is not None and each != AUTO:
                require_int(called, each, minimum)


def check_table(path: Path | None) -> None:
    """Raise WriteError unless a table can be written to `path`, and its conditions beside it."""
    if path is not None:
        check_writable(path)
        check_writable(path.with_suffix(".json"))


def check_keeps(out: Path, **inputs: Path | None) -> None:
    """Raise ValueError if `out` is one of the files that a command reads, by option."""
    for name, path in inputs.items():
        if path is not None and is_file(path) and is_file(out) and path.samefile(out):
            raise ValueError(
                f"{name}={quoted_path(path)} would be replaced, since {shown_path(out)} is to be "
                "written; name another file to write"
            )


def load_models(options: argparse.Namespace) -> "Pair":
    """Load the pair that the options name, or the embedded one.

    Raises:
        ValueError: only one model is named; or as `load_pair`.
    """
    from specviz.engine.models.pair import load_pair

    check_models(options)
    return load_pair(
        options.target,
        options.draft,
        device=options.device,
        dtype=options.dtype,
        device_map=options.device_map,
    )
