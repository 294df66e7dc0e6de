"""The command `specviz`: its commands, and the module that holds each.

A command's module offers `add_arguments(parser)` and `run(options)`, and perhaps `kept(options)`,
which says what an interrupted run leaves. The module is imported once its command is chosen, so
that `specviz --help` loads no torch.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from specviz import __version__
from specviz.cli.exit import end, nothing_kept

COMMANDS = {
    "demo": ("specviz.cli.demo", "compare three strategies on the embedded pair, record a run"),
    "generate": ("specviz.cli.generate", "decode prompts and print the texts"),
    "replay": ("specviz.cli.replay", "turn a recorded run into a page or a figure"),
    "audit": ("specviz.cli.audit", "judge the outputs of any decoder against a reference"),
    "bench": ("specviz.cli.bench", "measure strategies and baselines on equal work"),
    "cost": ("specviz.cli.cost", "compute what a pair costs on a measured device"),
    "metrics": ("specviz.cli.metrics", "read a server's counters of speculative decoding"),
    "simulate": ("specviz.cli.simulate", "play schedulers on many requests, without a model"),
    "train": (
        "specviz.cli.train",
        "train the embedded pair or draft heads; resumes where it stopped",
    ),
    "evaluate": ("specviz.cli.evaluate", "measure a pair on held-out files"),
}
STUDIES = {
    "survey": ("specviz.cli.survey", "all strategies: right or wrong, what breaks, what waste"),
    "agreement": ("specviz.cli.agreement", "do valid strategies agree with decoding alone?"),
    "couplings": ("specviz.cli.couplings", "what the ways to accept sampled drafts reach"),
    "biases": ("specviz.cli.biases", "how far rules that look right are from the target's text"),
    "tables": ("specviz.cli.tables", "the next drafts at every position, to replay schedulers"),
    "selection": ("specviz.cli.selection", "which drafts are worth verifying, without a model"),
    "packing": ("specviz.cli.packing", "what verifying costs as a rectangle and packed"),
    "trees": ("specviz.cli.trees", "trees of drafts against chains, at equal verified drafts"),
    "calibration": ("specviz.cli.calibration", "how often drafts are right, by rank and q"),
    "heads": ("specviz.cli.heads", "draft heads at equal training time, and what they are made of"),
    "laws": ("specviz.cli.laws", "acceptance length by the training and the size of the draft"),
    "overlap": ("specviz.cli.overlap", "one half of the rows drafts while the other verifies"),
    "memory": ("specviz.cli.memory", "tokens a second under memory budgets, and without drafts"),
    "chat": ("specviz.cli.chat", "what turns of conversations read again, by memory budget"),
    "losses": ("specviz.cli.losses", "what each habit of the published code costs"),
    "overhead": ("specviz.cli.overhead", "time of each phase inside and outside the models"),
    "moves": ("specviz.cli.moves", "what a realignment costs by each way to move K/V"),
    "ceilings": ("specviz.cli.ceilings", "the best this device can do"),
    "figures": ("specviz.cli.figures", "draw the pictures of figures/ from real runs"),
    "schematics": ("specviz.cli.schematics", "draw the ideas of the course, and print notation"),
}


class Command(argparse.ArgumentParser):
    """The parser of one command. It imports the command's module when it has to parse."""

    def __init__(self, module: str | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._module = module

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        if self._module is not None:
            module = import_module(self._module)
            self._module = None
            module.add_arguments(self)
            kept = getattr(module, "kept", nothing_kept)
            flags = {
                each.dest: each.option_strings[-1] for each in self._actions if each.option_strings
            }
            self.set_defaults(run=module.run, kept=kept, command=self.prog, flags=flags)
        return super().parse_known_args(*args, **kwargs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status as `end` does."""
    options = argparse.Namespace(command="specviz", kept=nothing_kept)

    def run() -> None:
        _parser().parse_args(arguments, options)
        options.run(options)

    return end(options, run)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specviz", description="See, check and compare batch speculative decoding."
    )
    parser.add_argument("--version", action="version", version=f"specviz {__version__}")
    commands = _add_commands(parser, "command", COMMANDS)
    text = "run one of the project's measurements"
    study = commands.add_parser("study", help=text, description=f"{_sentence(text)}.")
    _add_commands(study, "NAME", STUDIES)
    return parser


def _add_commands(
    parser: argparse.ArgumentParser, title: str, commands: Mapping[str, tuple[str, str]]
) -> "argparse._SubParsersAction[Command]":
    group = parser.add_subparsers(metavar=title, required=True, parser_class=Command)
    for name, (module, text) in commands.items():
        group.add_parser(name, module=module, help=text, description=_sentence(text))
    return group


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


if __name__ == "__main__":
    sys.exit(main())
