"""`specviz train`: train the embedded pair from the standard library's sources."""

import argparse
from pathlib import Path

from specviz.studies.arguments import check_counts, check_device, file_path, integer
from specviz.util.files import check_writable

BUDGET = ("target_steps", "draft_steps", "continuations")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "folder for checkpoints and weights (%(default)s)"
    parser.add_argument("--out", type=file_path, default=Path("training"), help=text)
    parser.add_argument("--target-steps", type=integer, help="optimiser steps of the target")
    parser.add_argument("--draft-steps", type=integer, help="optimiser steps of the draft")
    text = "documents that the target writes for the draft"
    parser.add_argument("--continuations", type=integer, help=text)
    parser.add_argument("--device", default="cpu")
    text = "use torch.compile (needs a C++ compiler)"
    parser.add_argument("--compile", action="store_true", help=text)


def run(options: argparse.Namespace) -> None:
    check_counts(options, *BUDGET)
    check_device(options.device)
    check_writable(options.out, folder=True)

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
