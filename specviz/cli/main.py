"""The command `specviz`: its arguments. What a command does stands in `commands`, how it ends in `ending`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from specviz import __version__
from specviz.cli import commands
from specviz.cli.exit import end

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, as `end` says."""
    return end(_parser().parse_args(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specviz", description="See, check and compare batch speculative decoding."
    )
    parser.add_argument("--version", action="version", version=f"specviz {__version__}")
    group = parser.add_subparsers(dest="command", required=True)
    for add in (
        _add_demo,
        _add_generate,
        _add_replay,
        _add_survey,
        _add_agreement,
        _add_couplings,
        _add_losses,
        _add_moves,
        _add_overhead,
        _add_bench,
        _add_ceilings,
        _add_cost,
        _add_simulate,
        _add_figures,
        _add_train,
    ):
        add(group)
    evaluate = _command(
        group, commands.evaluate, "print what a pair reaches on files that it has not seen"
    )
    _add_pair(evaluate)
    evaluate.set_defaults(max_new_tokens=128)
    return parser


def _command(
    group: Subparsers, run: Callable[[argparse.Namespace], None], text: str
) -> argparse.ArgumentParser:
    command = group.add_parser(
        run.__name__, help=text, description=text[0].upper() + text[1:] + "."
    )
    command.set_defaults(run=run)
    return command


def _add_pair(
    command: argparse.ArgumentParser, draft_tokens: Callable[[str], int | str] = int
) -> None:
    command.add_argument(
        "--target", help="hub id or folder of the target; without it the embedded pair"
    )
    command.add_argument("--draft", help="hub id or folder of the draft")
    command.add_argument("--device", help="cpu, cuda, cuda:1 (CUDA where there is one)")
    command.add_argument(
        "--device-map",
        help="instead of --device, to spread a large target over several GPUs: auto, balanced, sequential",
    )
    command.add_argument("--dtype", help="float32, bfloat16, float16 or float64")
    text = (
        "drafts a row and round (%(default)s)"
        if draft_tokens is int
        else "drafts a row and round, or auto (%(default)s)"
    )
    command.add_argument("--num-draft-tokens", type=draft_tokens, default=5, metavar="K", help=text)
    command.add_argument("--max-new-tokens", type=int, default=64, metavar="N")


def _number_or_word(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


def _csv(name: str) -> Path:
    if Path(name).suffix != ".csv":  # the conditions go beside it, to .json
        raise argparse.ArgumentTypeError(
            f"{name!r} is no CSV file; give it a name that ends in .csv"
        )
    return Path(name)


def _add_demo(group: Subparsers) -> None:
    demo = _command(
        group,
        commands.demo,
        "run three strategies on the embedded pair, compare them, and save a recorded run",
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo.safetensors"),
        help="where the recorded run goes (%(default)s)",
    )
    demo.add_argument(
        "--limit", type=int, default=16, help="how many of the bundled prompts (%(default)s)"
    )


def _add_generate(group: Subparsers) -> None:
    generate = _command(group, commands.generate, "decode prompts and print what was written")
    generate.add_argument("prompts", nargs="*", help="prompts; none for the bundled ones")
    _add_pair(generate, _number_or_word)
    generate.add_argument("--batch-size", type=int, default=8, metavar="B")
    generate.add_argument(
        "--strategy",
        default="inplace",
        help="eqspec, exspec, rollback ...; an unknown name lists them (%(default)s)",
    )
    generate.add_argument("--drafter", default="model", help="model or lookup (%(default)s)")
    generate.add_argument(
        "--temperature", type=float, help="sample at this temperature; without it, greedily"
    )
    generate.add_argument("--top-k", type=int, help="sample from the k most likely tokens")
    generate.add_argument(
        "--top-p", type=float, help="sample from the most likely tokens that reach this probability"
    )
    generate.add_argument(
        "--coupling",
        help="rejection (the default) or gumbel: how drafts are accepted when sampling",
    )
    generate.add_argument("--seed", type=int, default=0, help="of all that is drawn (%(default)s)")
    generate.add_argument(
        "--deterministic",
        action="store_true",
        help="forwards of one shape: no text depends on the batch around it",
    )
    generate.add_argument(
        "--graphs",
        action="store_true",
        help="capture the phases of a round as CUDA graphs where that is possible",
    )
    generate.add_argument(
        "--compile",
        action="store_true",
        help="let torch.compile make the models' forwards; slow at first",
    )
    generate.add_argument("--record", type=Path, metavar="PATH", help="save the recorded run here")


def _add_survey(group: Subparsers) -> None:
    survey = _command(
        group,
        commands.survey,
        "run every strategy, valid or not: is the text right, what breaks, what is wasted",
    )
    _add_pair(survey)
    survey.add_argument("--batch-size", type=int, default=8, metavar="B")
    survey.add_argument(
        "--limit", type=int, default=16, help="how many of the bundled prompts (%(default)s)"
    )
    survey.add_argument(
        "--out",
        type=_csv,
        help="also write the table to this CSV file, and a JSON file with the conditions beside it",
    )


def _add_agreement(group: Subparsers) -> None:
    text = "compare valid strategies at several batch sizes with decoding alone, name each difference's cause; resumes where it stopped"
    agreement = _command(group, commands.agreement, text)
    _add_pair(agreement)
    agreement.add_argument(
        "--spec-bench",
        type=Path,
        metavar="PATH",
        help="SpecBench's question.jsonl; without it the bundled prompts",
    )
    agreement.add_argument(
        "--limit", type=int, metavar="N", help="how many prompts, spread evenly over the file (all)"
    )
    cutting = "longer prompts are cut to their last tokens (%(default)s)"
    agreement.add_argument("--max-prompt-tokens", type=int, default=256, metavar="N", help=cutting)
    agreement.add_argument(
        "--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16, 32], metavar="B"
    )
    agreement.add_argument("--strategies", nargs="+", metavar="NAME", help="(all valid ones)")
    agreement.add_argument(
        "--deterministic",
        action="store_true",
        help="measure everything in the deterministic mode, too",
    )
    agreement.add_argument(
        "--out",
        type=_csv,
        help="CSV file, with a JSON file beside it (figures/data/agreement-<dtype>.csv)",
    )


def _add_replay(group: Subparsers) -> None:
    replay = _command(
        group,
        commands.replay,
        "turn a recorded run into a page that steps through it, or into a figure of one step",
    )
    replay.add_argument("run_file", type=Path, metavar="RUN", help="what generate --record wrote")
    replay.add_argument(
        "-o",
        "--out",
        type=Path,
        help="page (.html) or figure (.png, .svg); a page beside the run by default",
    )
    replay.add_argument(
        "--other", type=Path, help="a run of the same prompts, to be shown beside it"
    )
    replay.add_argument(
        "--step",
        type=int,
        default=0,
        help="round * 5 + phase: where the page opens, what the figure shows (%(default)s)",
    )


def _add_couplings(group: Subparsers) -> None:
    text = "measure what the Gumbel coupling costs: its mean acceptance length beside rejection sampling's, on the bundled prompts"
    couplings = _command(group, commands.couplings, text)
    _add_pair(couplings)
    couplings.add_argument("--batch-size", type=int, default=8, metavar="B")
    couplings.add_argument("--temperatures", type=float, nargs="+", default=[0.6, 1.0], metavar="T")
    couplings.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3], metavar="SEED")
    couplings.add_argument(
        "--out",
        type=_csv,
        help="also write the table to this CSV file, and a JSON file with the conditions beside it",
    )


def _add_losses(group: Subparsers) -> None:
    text = (
        "measure what each loss of the published EQSPEC and EXSPEC costs: alone, and all together"
    )
    losses = _command(group, commands.losses, text)
    _add_pair(losses)
    losses.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16], metavar="B")
    losses.add_argument("--limit", type=int, help="how many of the bundled prompts (all)")
    losses.add_argument(
        "--repetitions",
        type=int,
        default=3,
        metavar="N",
        help="of the timed runs; medians are shown (%(default)s)",
    )
    losses.add_argument(
        "--out",
        type=_csv,
        help="also write the table to this CSV file, and a JSON file with the conditions beside it",
    )


def _add_moves(group: Subparsers) -> None:
    moves = _command(
        group, commands.moves, "measure what a realignment costs by each way to move K/V"
    )
    moves.add_argument("--device", help="cpu, cuda, cuda:1 (CUDA where there is one)")
    moves.add_argument("--rows", type=int, nargs="+", default=[4, 8, 16, 32], metavar="B")
    moves.add_argument("--slots", type=int, nargs="+", default=[256, 1024], metavar="T")
    moves.add_argument(
        "--out",
        type=_csv,
        help="also write the table to this CSV file, and a JSON file with the conditions beside it",
    )


def _add_overhead(group: Subparsers) -> None:
    overhead = _command(
        group,
        commands.overhead,
        "measure what each phase takes in the models' forwards and beside them",
    )
    _add_pair(overhead)
    overhead.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8], metavar="B")
    overhead.add_argument(
        "--limit", type=int, default=8, help="how many of the bundled prompts (%(default)s)"
    )
    overhead.add_argument(
        "--repetitions",
        type=int,
        default=3,
        metavar="N",
        help="interleaved; medians are shown (%(default)s)",
    )
    overhead.add_argument(
        "--out",
        type=_csv,
        help="also write the table to this CSV file, and a JSON file with the conditions beside it",
    )


def _add_bench(group: Subparsers) -> None:
    text = "measure strategies and baselines on equal work, every text compared with decoding alone; goes on where it was interrupted"
    bench = _command(group, commands.bench, text)
    bench.add_argument(
        "--target", help="hub id or folder of the target; without it the embedded pair"
    )
    bench.add_argument("--draft", help="hub id or folder of the draft")
    bench.add_argument(
        "--device-map", help="spread a large target over several GPUs: auto, balanced, sequential"
    )
    bench.add_argument(
        "--shapes",
        nargs="+",
        metavar="NAME",
        help="configurations of published pairs with random weights: qwen3-8b/0.6b ...",
    )
    bench.add_argument(
        "--rates",
        type=float,
        nargs="+",
        metavar="R",
        help="acceptance of synthetic drafts at positions 1..K (0.7 0.5 0.4 ...)",
    )
    bench.add_argument(
        "--strategies",
        nargs="+",
        metavar="NAME",
        help="with options: exspec:window=32,fallback=wait (a standard list)",
    )
    bench.add_argument(
        "--drafters",
        nargs="+",
        metavar="NAME",
        help="model, lookup, synthetic (model; synthetic with --shapes)",
    )
    bench.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16], metavar="B")
    bench.add_argument(
        "--num-draft-tokens",
        type=_number_or_word,
        nargs="+",
        default=[5],
        metavar="K",
        help="numbers, or auto",
    )
    bench.add_argument("--max-new-tokens", type=int, nargs="+", default=[64], metavar="N")
    bench.add_argument(
        "--prompt-tokens",
        type=int,
        nargs="+",
        default=[None],
        metavar="N",
        help="cut prompts to their last N tokens",
    )
    words = "float32, bfloat16, float16, float64"
    bench.add_argument(
        "--dtype", "--dtypes", dest="dtypes", nargs="+", default=[None], metavar="DTYPE", help=words
    )
    bench.add_argument(
        "--device",
        "--devices",
        dest="devices",
        nargs="+",
        default=[None],
        help="cpu, cuda, cuda:1 (CUDA where there is one)",
    )
    bench.add_argument(
        "--spec-bench",
        type=Path,
        metavar="PATH",
        help="SpecBench's question.jsonl; without it the bundled prompts",
    )
    words = "how many prompts, of SpecBench's spread evenly over the file; beyond those that there are come their first halves, and so on"
    bench.add_argument("--limit", type=int, metavar="N", help=words)
    bench.add_argument(
        "--repetitions",
        type=int,
        default=3,
        metavar="N",
        help="interleaved; medians are shown (%(default)s)",
    )
    bench.add_argument(
        "--turns",
        type=int,
        default=1,
        metavar="N",
        help="methods take turns, N each, for a machine of uneven speed (%(default)s)",
    )
    bench.add_argument("--recording", action="store_true", help="measure what recording costs, too")
    bench.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="cells as tasks of Ray, on this machine or the cluster there",
    )
    bench.add_argument(
        "--gpus", type=int, metavar="N", help="with --ray: GPUs of a cell on CUDA (1)"
    )
    bench.add_argument(
        "--cpus",
        type=int,
        metavar="N",
        help="with --ray: CPUs of a cell (a whole node for a cell on the CPU, else 1)",
    )
    bench.add_argument(
        "--out",
        type=Path,
        default=Path("figures/data"),
        help="folder for bench.csv and bench.json (%(default)s)",
    )
    bench.add_argument(
        "--report", type=Path, help="page with charts and tables (bench.html in that folder)"
    )
    bench.add_argument("--parquet", action="store_true", help="write bench.parquet, too")
    bench.add_argument(
        "--fresh", action="store_true", help="forget an interrupted run in that folder"
    )


def _add_ceilings(group: Subparsers) -> None:
    ceilings = _command(
        group,
        commands.ceilings,
        "measure what this device can do at best: bandwidth, matrix products, launches",
    )
    ceilings.add_argument("--device", help="cpu, cuda, cuda:1 (CUDA where there is one)")
    ceilings.add_argument(
        "--dtypes",
        nargs="+",
        default=["float32", "bfloat16"],
        metavar="DTYPE",
        help="of matrix products (%(default)s)",
    )
    ceilings.add_argument(
        "--out",
        type=_csv,
        help="CSV file, with a JSON file beside it (figures/data/ceilings-<device>.csv)",
    )


def _add_cost(group: Subparsers) -> None:
    text = "reckon what a pair costs on a measured device: floors of each phase, break-even acceptance, memory; no weights are loaded"
    cost = _command(group, commands.cost, text)
    cost.add_argument(
        "--target", help="hub id or folder of the target; without it the embedded pair"
    )
    cost.add_argument("--draft", help="hub id or folder of the draft")
    cost.add_argument(
        "--shapes",
        metavar="NAME",
        help="instead of two models: qwen3-8b/0.6b, vicuna-7b/68m, glm4-9b/0.6b",
    )
    ceilings = Path("figures/data/ceilings-cpu.csv")
    cost.add_argument(
        "--ceilings",
        type=Path,
        default=ceilings,
        metavar="CSV",
        help="what specviz ceilings wrote (%(default)s)",
    )
    cost.add_argument("--dtype", default="float32", help="of weights and K/V (%(default)s)")
    cost.add_argument(
        "--captured", action="store_true", help="rounds are replayed from CUDA graphs"
    )
    cost.add_argument(
        "--strategy", default="inplace", help="with options: exspec:window=64 (%(default)s)"
    )
    cost.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16, 32], metavar="B")
    cost.add_argument("--num-draft-tokens", type=int, default=5, metavar="K")
    cost.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="(%(default)s)")
    cost.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="(%(default)s)")
    cost.add_argument(
        "--rates",
        type=float,
        nargs="+",
        metavar="R",
        help="acceptance at positions 1..K, for speedup and the best K",
    )
    cost.add_argument(
        "--memory-gb",
        type=float,
        metavar="G",
        help="say the largest B that fits into so much memory",
    )


def _add_simulate(group: Subparsers) -> None:
    text = "simulate the schedulers on many requests: throughput, latency, grouping, the size of a cluster; no model decodes them"
    simulate = _command(group, commands.simulate, text)
    simulate.add_argument(
        "--runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="what generate --record wrote: costs and acceptance",
    )
    simulate.add_argument(
        "--ceilings",
        type=Path,
        metavar="CSV",
        help="instead: floors on a device, from what specviz ceilings wrote",
    )
    simulate.add_argument(
        "--shapes",
        metavar="NAME",
        help="with --ceilings: qwen3-8b/0.6b, vicuna-7b/68m, glm4-9b/0.6b",
    )
    simulate.add_argument(
        "--captured",
        action="store_true",
        help="with --ceilings: rounds are replayed from CUDA graphs",
    )
    _add_pair(simulate)
    simulate.set_defaults(num_draft_tokens=None, max_new_tokens=64)
    simulate.add_argument(
        "--policies",
        nargs="+",
        metavar="NAME",
        help="with options: exspec:window=64,fallback=wait (a standard list)",
    )
    simulate.add_argument(
        "--study",
        choices=("grouping", "latency", "refill", "held_out"),
        help="a question instead of a comparison",
    )
    simulate.add_argument("--requests", type=int, default=10_000, metavar="N", help="(%(default)s)")
    simulate.add_argument(
        "--alpha",
        type=float,
        nargs="+",
        metavar="A",
        help="each draft is accepted with it; several: kinds of requests",
    )
    simulate.add_argument(
        "--prompt-tokens", type=int, nargs="+", metavar="N", help="from N to N (those of the runs)"
    )
    simulate.add_argument("--batch-size", type=int, default=8, metavar="B")
    simulate.add_argument(
        "--window", type=int, default=32, metavar="W", help="of exspec (%(default)s)"
    )
    simulate.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help="requests a second, a Poisson process; without it all at once",
    )
    simulate.add_argument(
        "--latency",
        type=float,
        metavar="S",
        help="with --rate: how many devices end 99 %% of requests in S seconds?",
    )
    simulate.add_argument("--devices", type=int, default=1, metavar="D")
    simulate.add_argument(
        "--router",
        default="round_robin",
        help="round_robin, shortest_queue or least_work (%(default)s)",
    )
    simulate.add_argument("--seed", type=int, default=0, help="of all that is drawn (%(default)s)")
    simulate.add_argument(
        "--out",
        type=_csv,
        help="also write the table to this CSV file, and a JSON file with the conditions beside it",
    )


def _add_figures(group: Subparsers) -> None:
    figures = _command(group, commands.figures, "draw the pictures of the README from a real run")
    figures.add_argument("--out", type=Path, default=Path("figures"), help="folder (%(default)s)")


def _add_train(group: Subparsers) -> None:
    train = _command(
        group,
        commands.train,
        "train the embedded pair from the standard library's sources; resumes where it stopped",
    )
    train.add_argument(
        "--out",
        type=Path,
        default=Path("training"),
        help="folder for checkpoints and weights (%(default)s)",
    )
    train.add_argument("--target-steps", type=int, help="optimiser steps of the target")
    train.add_argument("--draft-steps", type=int, help="optimiser steps of the draft")
    train.add_argument(
        "--continuations", type=int, help="documents that the target writes for the draft"
    )
    train.add_argument("--device", default="cpu")
    train.add_argument(
        "--compile", action="store_true", help="use torch.compile (needs a C++ compiler)"
    )


if __name__ == "__main__":
    sys.exit(main())
