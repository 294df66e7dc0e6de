"""`specviz train`: train the embedded pair from the standard library's sources, or heads for it."""

import argparse
from pathlib import Path

from specviz.studies.arguments import check_counts, check_device, file_path, integer
from specviz.util.files import check_writable
from specviz.util.validate import require_choice

BUDGET = ("target_steps", "draft_steps", "continuations")
HEAD_NAMES = ("medusa", "clover", "eagle3", "eagle1", "parallel")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "folder for checkpoints and weights (%(default)s)"
    parser.add_argument("--out", type=file_path, default=Path("training"), help=text)
    parser.add_argument("--target-steps", type=integer, help="optimiser steps of the target")
    parser.add_argument("--draft-steps", type=integer, help="optimiser steps of the draft")
    text = "documents that the target writes for the draft or for heads"
    parser.add_argument("--continuations", type=integer, help=text)
    parser.add_argument("--device", default="cpu")
    text = "use torch.compile (needs a C++ compiler)"
    parser.add_argument("--compile", action="store_true", help=text)
    text = f"train a head for the embedded target instead: {', '.join(HEAD_NAMES)}; repeatable"
    parser.add_argument("--heads", action="append", metavar="KIND", help=text)
    text = "optimiser steps of all heads, or given once for each head"
    parser.add_argument("--head-steps", type=integer, action="append", metavar="N", help=text)


def run(options: argparse.Namespace) -> None:
    check_counts(options, *BUDGET, "head_steps")
    check_heads(options)
    check_device(options.device)
    check_writable(options.out, folder=True)
    if options.heads:
        train_heads(options)
    else:
        train_pair(options)


def check_heads(options: argparse.Namespace) -> None:
    """Raise ValueError for unknown names of heads, and for options that do not fit together."""
    if options.heads is None:
        if options.head_steps is not None:
            raise ValueError("--head-steps needs a head; give --heads too")
        return
    for name in options.heads:
        require_choice("heads", name, HEAD_NAMES)
    if len(set(options.heads)) < len(options.heads):
        names = " ".join(options.heads)
        raise ValueError(f"heads must be different, got {names}; name each once")
    if options.head_steps is not None and len(options.head_steps) not in (1, len(options.heads)):
        raise ValueError(
            f"head_steps must be given once or {len(options.heads)} times, once for each head, "
            f"got {len(options.head_steps)}; give one"
        )
    for name in ("target_steps", "draft_steps"):
        if getattr(options, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} is of the pair's training; leave it out with --heads")
    if options.compile:
        raise ValueError("--compile is of the pair's training; leave it out with --heads")


def train_heads(options: argparse.Namespace) -> None:
    from specviz.zoo.heads.pipeline import CONTINUATIONS, train_heads

    weights = train_heads(
        options.heads,
        options.out,
        steps=options.head_steps,
        continuations=options.continuations or CONTINUATIONS,
        device=options.device,
    )
    names = ", ".join(options.heads)
    print(f"{weights} holds the heads {names}; use load_heads({str(weights)!r}, load_pair())")


def train_pair(options: argparse.Namespace) -> None:
    from specviz.zoo.pipeline import Budget, train_pair

    given = {}
    for name in BUDGET:
        steps = getattr(options, name)
        if steps is not None:
            given[name] = steps
    weights = train_pair(
        options.out, Budget(**given), device=options.device, compile=options.compile
    )
    target = str(weights / "target")
    draft = str(weights / "draft")
    print(f"{weights} holds the pair; use load_pair({target!r}, {draft!r})")


def kept(options: argparse.Namespace) -> str:
    """Say what an interrupted training leaves."""
    folder = options.out / "checkpoints"
    return f"checkpoints are kept in {folder}, and the same command goes on there"
