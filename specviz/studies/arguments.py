"""Arguments that several commands share, and the pair that they name."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specviz.engine.models.pair import Pair, load_pair

DEVICES = "cpu, cuda, cuda:1 (CUDA where there is one)"
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


def add_lengths(
    parser: argparse.ArgumentParser,
    *,
    draft_tokens: Callable[[str], int | str] = int,
    max_new_tokens: int = 64,
) -> None:
    """Add --num-draft-tokens, read by `draft_tokens`, and --max-new-tokens."""
    words = "" if draft_tokens is int else ", or auto"
    text = f"draft tokens a row and round{words} (%(default)s)"
    parser.add_argument("--num-draft-tokens", type=draft_tokens, default=5, metavar="K", help=text)
    text = "(%(default)s)"
    parser.add_argument(
        "--max-new-tokens", type=int, default=max_new_tokens, metavar="N", help=text
    )


def lengths(options: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_lengths` added, as arguments."""
    names = ("num_draft_tokens", "max_new_tokens")
    return {name: getattr(options, name) for name in names}


def add_repetitions(parser: argparse.ArgumentParser) -> None:
    """Add --repetitions."""
    text = "interleaved; the table shows medians (%(default)s)"
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help=text)


def add_spec_bench(parser: argparse.ArgumentParser) -> None:
    """Add --spec-bench."""
    text = "SpecBench's question.jsonl (the bundled prompts)"
    parser.add_argument("--spec-bench", type=Path, metavar="PATH", help=text)


def add_out(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add --out: the CSV file of a table. `default` describes the file written without it."""
    text = "CSV file for the table; the conditions go next to it, to .json"
    if default is not None:
        text += f" ({default})"
    parser.add_argument("--out", type=csv_file, help=text)


def csv_file(name: str) -> Path:
    """Return the path of a CSV file. Raises ArgumentTypeError if its name ends otherwise."""
    path = Path(name)
    if path.suffix != ".csv":  # the conditions go to the same name with .json
        raise argparse.ArgumentTypeError(f"{name!r} must be the name of a .csv file")
    return path


def int_or_word(text: str) -> int | str:
    """Return `text` as an int if it is one."""
    return int(text) if text.lstrip("-").isdigit() else text


def check_target_and_draft(options: argparse.Namespace) -> None:
    """Raise ValueError if only one of --target and --draft is given."""
    if options.target is not None and options.draft is None:
        raise ValueError(f"--target {options.target} needs a draft; give --draft too")
    if options.draft is not None and options.target is None:
        raise ValueError(f"--draft {options.draft} needs a target; give --target too")


def load_models(options: argparse.Namespace) -> Pair:
    """Load the pair that the options name, or the embedded one.

    Raises:
        ValueError: only one model is named; or as `load_pair`.
    """
    check_target_and_draft(options)
    return load_pair(
        options.target,
        options.draft,
        device=options.device,
        dtype=options.dtype,
        device_map=options.device_map,
    )
