"""The command `specviz`: demo, generate, survey, bench, figures, train, evaluate. Parses arguments, calls the library, prints."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from specviz.engine.pair import Pair


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, or 2 for an argument that cannot be used."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, OSError) as error:
        print(f"specviz {options.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specviz", description="See, check and compare batch speculative decoding.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = _command(commands, "demo", _demo, "run three strategies on the embedded pair, compare them, and save a recorded run")
    demo.add_argument("--out", type=Path, default=Path("runs/demo.safetensors"), help="where the recorded run goes (%(default)s)")
    demo.add_argument("--limit", type=int, default=16, help="how many of the bundled prompts (%(default)s)")
    generate = _command(commands, "generate", _generate, "decode prompts and print what was written")
    generate.add_argument("prompts", nargs="*", help="prompts; none for the bundled ones")
    _add_pair(generate)
    generate.add_argument("--batch-size", type=int, default=8, metavar="B")
    generate.add_argument("--strategy", default="inplace", help="eqspec, exspec, rollback ...; an unknown name lists them (%(default)s)")
    generate.add_argument("--record", type=Path, metavar="PATH", help="save the recorded run here")
    survey = _command(commands, "survey", _survey, "run every strategy, valid or not: is the text right, what breaks, what is wasted")
    _add_pair(survey)
    survey.add_argument("--batch-size", type=int, default=8, metavar="B")
    survey.add_argument("--limit", type=int, default=16, help="how many of the bundled prompts (%(default)s)")
    survey.add_argument("--out", type=Path, help="also write the table to this CSV file, and a JSON file with the conditions beside it")
    bench = _command(commands, "bench", _bench, "measure the strategies on equal work")
    _add_pair(bench)
    bench.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 8, 16])
    bench.add_argument("--repetitions", type=int, default=3)
    bench.add_argument("--out", type=Path, default=Path("figures/data"), help="folder for bench.csv and bench.json (%(default)s)")
    figures = _command(commands, "figures", _figures, "draw the pictures of the README from a real run")
    figures.add_argument("--out", type=Path, default=Path("figures"), help="folder (%(default)s)")
    train = _command(commands, "train", _train, "train the embedded pair from the standard library's sources; resumes where it stopped")
    train.add_argument("--out", type=Path, default=Path("training"), help="folder for checkpoints and weights (%(default)s)")
    train.add_argument("--target-steps", type=int, help="optimiser steps of the target")
    train.add_argument("--draft-steps", type=int, help="optimiser steps of the draft")
    train.add_argument("--continuations", type=int, help="documents that the target writes for the draft")
    train.add_argument("--device", default="cpu")
    train.add_argument("--compile", action="store_true", help="use torch.compile (needs a C++ compiler)")
    evaluate = _command(commands, "evaluate", _evaluate, "print what a pair reaches on files that it has not seen")
    _add_pair(evaluate)
    evaluate.set_defaults(max_new_tokens=128)
    return parser


def _command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, run: object, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.set_defaults(run=run)
    return command


def _add_pair(command: argparse.ArgumentParser) -> None:
    command.add_argument("--target", help="hub id or folder of the target; without it the embedded pair")
    command.add_argument("--draft", help="hub id or folder of the draft")
    command.add_argument("--device", help="cpu, cuda, cuda:1 (CUDA where there is one)")
    command.add_argument("--dtype", help="float32, bfloat16, float16 or float64")
    command.add_argument("--num-draft-tokens", type=int, default=5, metavar="K")
    command.add_argument("--max-new-tokens", type=int, default=64, metavar="N")


def _load(options: argparse.Namespace) -> "Pair":
    from specviz.engine.pair import load_pair

    names = {"target": options.target, "draft": options.draft}
    for missing, given in (("draft", "target"), ("target", "draft")):
        if names[missing] is None and names[given] is not None:
            raise ValueError(f"--{given} {names[given]} comes without a {missing}; give --{missing} too")
    return load_pair(options.target, options.draft, device=options.device, dtype=options.dtype)


def _print(table: "pd.DataFrame", decimals: int = 3) -> None:
    print(table.round(decimals).to_string(index=False))


def _demo(options: argparse.Namespace) -> None:
    import pandas as pd

    import specviz as sv

    pair, prompts = sv.load_pair(), sv.load_prompts(limit=options.limit)
    results = {
        name: sv.generate(pair, prompts, strategy=name, max_new_tokens=64, record=name == "eqspec")
        for name in ("autoregressive", "eqspec", "inplace")
    }
    table = pd.concat([result.summary for result in results.values()])
    reference = results["autoregressive"]
    table.insert(1, "same_text", [result.tokens == reference.tokens for result in results.values()])
    shown = ["strategy", "same_text", "new_tokens", "rounds", "mean_acceptance_length", "draft_acceptance_rate", "tokens_per_s"]
    print(f"\n{len(prompts)} prompts, B = 8, K = 5, on {reference.meta['device']} in {reference.meta['dtype']}\n")
    _print(table[shown])
    print(_verdict(table))
    print(f"\nOne of the texts (prompt, then what was written):\n\n{prompts[-1][-240:]}▸{reference.texts[-1]}\n")
    _save(results["eqspec"].trace, options.out)
    print("Open notebooks/00_quickstart.ipynb (make lab) to see how it came about.")


def _verdict(table: "pd.DataFrame") -> str:
    """One sentence on who was fastest, and why that is no surprise."""
    speed = table.set_index("strategy")["tokens_per_s"]
    ratio = speed["inplace"] / speed["autoregressive"]
    why = "fewer rounds, each of them dearer: K draft forwards, and a verification of K + 1 tokens a row"
    return f"\ninplace ran at {ratio:.2f} times the speed of autoregressive decoding in the same batch ({why})."


def _save(trace: object, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    trace.save(path)  # type: ignore[attr-defined]
    print(f"{trace} saved as {path} ({path.stat().st_size / 1e6:.1f} MB)")


def _generate(options: argparse.Namespace) -> None:
    import specviz as sv

    prompts = options.prompts or sv.load_prompts()
    result = sv.generate(
        _load(options), prompts, strategy=options.strategy, num_draft_tokens=options.num_draft_tokens, batch_size=options.batch_size,
        max_new_tokens=options.max_new_tokens, record=options.record is not None,
    )  # fmt: skip
    for prompt, text in zip(prompts, result.texts, strict=True):
        print(f"{prompt}▸{text}\n{'─' * 60}")
    _print(result.summary)
    if options.record is not None:
        _save(result.trace, options.record)


def _bench(options: argparse.Namespace) -> None:
    from specviz.bench import Grid, run_bench, save_bench
    from specviz.prompts import load_prompts

    grid = Grid(
        batch_sizes=options.batch_sizes, num_draft_tokens=options.num_draft_tokens, max_new_tokens=options.max_new_tokens,
        repetitions=options.repetitions,
    )  # fmt: skip
    table, conditions = run_bench(_load(options), load_prompts(), grid)
    _print(table, 2)
    print("\n" + ", ".join(f"{name} {value}" for name, value in conditions.items() if name != "versions"))
    print("written to " + " and ".join(map(str, save_bench(table, conditions, options.out))))


def _survey(options: argparse.Namespace) -> None:
    import specviz as sv
    from specviz.survey import survey

    prompts = sv.load_prompts(limit=options.limit)
    found = survey(
        _load(options), prompts, batch_size=options.batch_size, num_draft_tokens=options.num_draft_tokens,
        max_new_tokens=options.max_new_tokens,
    )  # fmt: skip
    meta, named = (
        found.reference.meta,
        found.table["strategy"] + found.table["options"].map(lambda options: f"({options})" if options else ""),
    )
    print(f"\n{len(prompts)} prompts, B = {options.batch_size}, K = {options.num_draft_tokens}, on {meta['device']} in {meta['dtype']}\n")
    print(found.table.drop(columns=["strategy", "options"]).round(3).set_axis(named).T.to_string())
    print("\nWhat became of the first prompt, after " + repr(prompts[0][-60:]))
    for name, result in zip(["autoregressive, alone", *named], [found.reference, *found.results], strict=True):
        print(f"{name:>38}: {result.texts[0][:100]!r}")
    if options.out is not None:
        print("written to " + " and ".join(map(str, found.save(options.out))))


def _figures(options: argparse.Namespace) -> None:
    from specviz.figures import make_figures

    for path in make_figures(options.out):
        print(path)


def _train(options: argparse.Namespace) -> None:
    from specviz.zoo.pipeline import Budget, train_pair

    asked = {"target_steps": options.target_steps, "draft_steps": options.draft_steps, "continuations": options.continuations}
    budget = Budget(**{name: steps for name, steps in asked.items() if steps is not None})
    weights = train_pair(options.out, budget, device=options.device, compile=options.compile)
    print(f"{weights} holds the pair; use load_pair({str(weights / 'target')!r}, {str(weights / 'draft')!r})")


def _evaluate(options: argparse.Namespace) -> None:
    from specviz.prompts import load_prompts
    from specviz.zoo.measure import measure_pair

    pair = _load(options)
    _print(measure_pair(pair, load_prompts(), num_draft_tokens=options.num_draft_tokens, max_new_tokens=options.max_new_tokens))


if __name__ == "__main__":
    sys.exit(main())
