"""The command `specviz`: its arguments, and how it ends. What a command does stands in `commands`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from specviz import commands

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, or 2 for an argument that cannot be used or a library that is missing."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, OSError, ImportError) as error:
        print(f"specviz {options.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specviz", description="See, check and compare batch speculative decoding.")
    group = parser.add_subparsers(dest="command", required=True)
    for add in (_add_demo, _add_generate, _add_replay, _add_survey, _add_agreement, _add_couplings, _add_bench, _add_figures, _add_train):
        add(group)
    evaluate = _command(group, commands.evaluate, "print what a pair reaches on files that it has not seen")
    _add_pair(evaluate)
    evaluate.set_defaults(max_new_tokens=128)
    return parser


def _command(group: Subparsers, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
    command = group.add_parser(run.__name__, help=text, description=text[0].upper() + text[1:] + ".")
    command.set_defaults(run=run)
    return command


def _add_pair(command: argparse.ArgumentParser) -> None:
    command.add_argument("--target", help="hub id or folder of the target; without it the embedded pair")
    command.add_argument("--draft", help="hub id or folder of the draft")
    command.add_argument("--device", help="cpu, cuda, cuda:1 (CUDA where there is one)")
    command.add_argument("--device-map", help="instead of --device, to spread a large target over several GPUs: auto, balanced, sequential")
    command.add_argument("--dtype", help="float32, bfloat16, float16 or float64")
    command.add_argument("--num-draft-tokens", type=int, default=5, metavar="K")
    command.add_argument("--max-new-tokens", type=int, default=64, metavar="N")


def _csv(name: str) -> Path:
    if Path(name).suffix != ".csv":  # the conditions go beside it, to .json
        raise argparse.ArgumentTypeError(f"{name!r} is no CSV file; give it a name that ends in .csv")
    return Path(name)


def _add_demo(group: Subparsers) -> None:
    demo = _command(group, commands.demo, "run three strategies on the embedded pair, compare them, and save a recorded run")
    demo.add_argument("--out", type=Path, default=Path("runs/demo.safetensors"), help="where the recorded run goes (%(default)s)")
    demo.add_argument("--limit", type=int, default=16, help="how many of the bundled prompts (%(default)s)")


def _add_generate(group: Subparsers) -> None:
    generate = _command(group, commands.generate, "decode prompts and print what was written")
    generate.add_argument("prompts", nargs="*", help="prompts; none for the bundled ones")
    _add_pair(generate)
    generate.add_argument("--batch-size", type=int, default=8, metavar="B")
    generate.add_argument("--strategy", default="inplace", help="eqspec, exspec, rollback ...; an unknown name lists them (%(default)s)")
    generate.add_argument("--drafter", default="model", help="model or lookup (%(default)s)")
    generate.add_argument("--temperature", type=float, help="sample at this temperature; without it, greedily")
    generate.add_argument("--top-k", type=int, help="sample from the k most likely tokens")
    generate.add_argument("--top-p", type=float, help="sample from the most likely tokens that reach this probability")
    generate.add_argument("--coupling", help="rejection (the default) or gumbel: how drafts are accepted when sampling")
    generate.add_argument("--seed", type=int, default=0, help="of all that is drawn (%(default)s)")
    generate.add_argument("--deterministic", action="store_true", help="forwards of one shape: no text depends on the batch around it")
    generate.add_argument("--record", type=Path, metavar="PATH", help="save the recorded run here")


def _add_survey(group: Subparsers) -> None:
    survey = _command(group, commands.survey, "run every strategy, valid or not: is the text right, what breaks, what is wasted")
    _add_pair(survey)
    survey.add_argument("--batch-size", type=int, default=8, metavar="B")
    survey.add_argument("--limit", type=int, default=16, help="how many of the bundled prompts (%(default)s)")
    survey.add_argument("--out", type=_csv, help="also write the table to this CSV file, and a JSON file with the conditions beside it")


def _add_agreement(group: Subparsers) -> None:
    text = "compare valid strategies at several batch sizes with decoding alone, name each difference's cause; resumes where it stopped"
    agreement = _command(group, commands.agreement, text)
    _add_pair(agreement)
    agreement.add_argument("--spec-bench", type=Path, metavar="PATH", help="SpecBench's question.jsonl; without it the bundled prompts")
    agreement.add_argument("--limit", type=int, metavar="N", help="how many prompts, spread evenly over the file (all)")
    cutting = "longer prompts are cut to their last tokens (%(default)s)"
    agreement.add_argument("--max-prompt-tokens", type=int, default=256, metavar="N", help=cutting)
    agreement.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16, 32], metavar="B")
    agreement.add_argument("--strategies", nargs="+", metavar="NAME", help="(all valid ones)")
    agreement.add_argument("--deterministic", action="store_true", help="measure everything in the deterministic mode, too")
    agreement.add_argument("--out", type=_csv, help="CSV file, with a JSON file beside it (figures/data/agreement-<dtype>.csv)")


def _add_replay(group: Subparsers) -> None:
    replay = _command(group, commands.replay, "turn a recorded run into a page that steps through it, or into a figure of one step")
    replay.add_argument("run_file", type=Path, metavar="RUN", help="what generate --record wrote")
    replay.add_argument("-o", "--out", type=Path, help="page (.html) or figure (.png, .svg); a page beside the run by default")
    replay.add_argument("--other", type=Path, help="a run of the same prompts, to be shown beside it")
    replay.add_argument("--step", type=int, default=0, help="round * 5 + phase: where the page opens, what the figure shows (%(default)s)")


def _add_couplings(group: Subparsers) -> None:
    text = "measure what the Gumbel coupling costs: its mean acceptance length beside rejection sampling's, on the bundled prompts"
    couplings = _command(group, commands.couplings, text)
    _add_pair(couplings)
    couplings.add_argument("--batch-size", type=int, default=8, metavar="B")
    couplings.add_argument("--temperatures", type=float, nargs="+", default=[0.6, 1.0], metavar="T")
    couplings.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3], metavar="SEED")
    couplings.add_argument("--out", type=_csv, help="also write the table to this CSV file, and a JSON file with the conditions beside it")


def _add_bench(group: Subparsers) -> None:
    bench = _command(group, commands.bench, "measure the strategies on equal work")
    _add_pair(bench)
    bench.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16])
    bench.add_argument("--repetitions", type=int, default=3)
    bench.add_argument("--out", type=Path, default=Path("figures/data"), help="folder for bench.csv and bench.json (%(default)s)")


def _add_figures(group: Subparsers) -> None:
    figures = _command(group, commands.figures, "draw the pictures of the README from a real run")
    figures.add_argument("--out", type=Path, default=Path("figures"), help="folder (%(default)s)")


def _add_train(group: Subparsers) -> None:
    train = _command(group, commands.train, "train the embedded pair from the standard library's sources; resumes where it stopped")
    train.add_argument("--out", type=Path, default=Path("training"), help="folder for checkpoints and weights (%(default)s)")
    train.add_argument("--target-steps", type=int, help="optimiser steps of the target")
    train.add_argument("--draft-steps", type=int, help="optimiser steps of the draft")
    train.add_argument("--continuations", type=int, help="documents that the target writes for the draft")
    train.add_argument("--device", default="cpu")
    train.add_argument("--compile", action="store_true", help="use torch.compile (needs a C++ compiler)")


if __name__ == "__main__":
    sys.exit(main())
