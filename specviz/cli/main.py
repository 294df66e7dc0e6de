"""The command `specviz`: its commands, and the function behind each.

A command is a function: its signature gives the options, and its docstring explains them. Its
module is imported once the command is chosen, so that `specviz --help` loads no torch.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from typing import Annotated, get_args, get_type_hints

import tyro

from specviz import __version__
from specviz.cli.exit import end

COMMANDS = {
    "demo": "compare three strategies on the embedded pair, record a run",
    "generate": "decode prompts and print the texts",
    "replay": "turn a recorded run into a page or a figure",
    "audit": "judge the outputs of any decoder against a reference",
    "bench": "measure strategies and baselines on equal work",
    "cost": "compute what a pair costs on a measured device",
    "metrics": "read a server's counters of speculative decoding",
    "simulate": "play schedulers on many requests, or on a server's log, without a model",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status as `end` does."""
    name, *rest = [*(sys.argv[1:] if arguments is None else arguments), ""]
    if name in ("-h", "--help"):
        return end("specviz", {}, lambda: print(usage()))
    if name == "--version":
        return end("specviz", {}, lambda: print(f"specviz {__version__}"))
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(COMMANDS)}"
        wrong = f"{name!r} is no command" if name else "a command is missing"
        print(f"specviz: {wrong}; {hint} (specviz --help explains them)", file=sys.stderr)
        return 2
    function = getattr(import_module(f"specviz.cli.{name}"), name)
    parser = (tyro.conf.FlagCreatePairsOff, tyro.conf.AvoidSubcommands)
    command = f"specviz {name}"

    plain_help(function)

    def run() -> None:
        tyro.cli(function, prog=command, args=rest[:-1], config=parser)

    return end(command, options_of(function), run)


@cache
def plain_help(owner: Callable[..., object]) -> None:
    """Leave defaults that are None out of the help, where the option's text says what they mean."""

    def hint(default: str) -> str:
        return "" if default in ("None", "") else f"(default: {default})"

    for name, kind in get_type_hints(owner, include_extras=True).items():
        owner.__annotations__[name] = Annotated[kind, tyro.conf.arg(help_behavior_hint=hint)]
        for shared in get_args(kind)[:1]:
            if isinstance(shared, type) and is_dataclass(shared):
                plain_help(shared)


def usage() -> str:
    """Return what `specviz --help` prints."""
    lines = ["usage: specviz COMMAND [OPTIONS]", ""]
    lines += ["See, check and compare batch speculative decoding.", ""]
    lines += [f"  {name:10}{text}" for name, text in COMMANDS.items()]
    return "\n".join([*lines, "", "specviz COMMAND --help explains a command."])


def options_of(function: Callable[..., object]) -> dict[str, str]:
    """Return the options of a command as they are typed, by the names of its parameters."""
    names: list[str] = []
    hints = get_type_hints(function)
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is not Parameter.KEYWORD_ONLY:  # it stands without an option
            continue
        if is_dataclass(hints[name]):
            names += [item.name for item in fields(hints[name])]
        else:
            names.append(name)
    return {name: "--" + name.replace("_", "-") for name in names}


if __name__ == "__main__":
    sys.exit(main())
