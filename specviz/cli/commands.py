"""What the commands of `specviz` do: each takes the parsed arguments, calls the library and prints. Libraries are imported when needed."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.cli.exit import check_finished
from specviz.util.files import make_folder, replacing
from specviz.util.text import harmless

if TYPE_CHECKING:
    import pandas as pd

    from specviz.engine.models.pair import Pair
    from specviz.engine.sampling import SamplingParams

_UNFINISHED = {
    "interrupted": " [interrupted]",
    "not_finite": " [ended: the target's logits were no numbers]",
}


def load(options: argparse.Namespace) -> "Pair":
    """The pair that is named, the embedded one if none is."""
    from specviz.engine.models.pair import load_pair

    names = {"target": options.target, "draft": options.draft}
    for missing, given in (("draft", "target"), ("target", "draft")):
        if names[missing] is None and names[given] is not None:
            raise ValueError(
                f"--{given} {names[given]} comes without a {missing}; give --{missing} too"
            )
    return load_pair(
        options.target,
        options.draft,
        device=options.device,
        dtype=options.dtype,
        device_map=options.device_map,
    )


def demo(options: argparse.Namespace) -> None:
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
    shown = [
        "strategy",
        "same_text",
        "new_tokens",
        "rounds",
        "mean_acceptance_length",
        "draft_acceptance_rate",
        "tokens_per_s",
    ]
    print(
        f"\n{len(prompts)} prompts, B = 8, K = 5, on {reference.meta['device']} in {reference.meta['dtype']}\n"
    )
    _print(table[shown])
    print(_verdict(table))
    print(
        harmless(
            f"\nOne of the texts (▸ is where the prompt ends):\n\n{prompts[-1][-240:]}▸{reference.texts[-1]}\n"
        )
    )
    _save(results["eqspec"].trace, options.out)
    print(
        f"To see how it came about: `specviz replay {options.out}` makes a page for a browser; `make lab` opens the quickstart."
    )


def _verdict(table: "pd.DataFrame") -> str:
    """One sentence on who was fastest, and why that is no surprise."""
    speed = table.set_index("strategy")["tokens_per_s"]
    ratio = speed["inplace"] / speed["autoregressive"]
    why = "fewer rounds, each of them dearer: K draft forwards, and a verification of K + 1 tokens a row"
    return f"\ninplace ran at {ratio:.2f} times the speed of autoregressive decoding in the same batch ({why})."


def generate(options: argparse.Namespace) -> None:
    import specviz as sv

    prompts = options.prompts or sv.load_prompts()
    result = sv.generate(
        load(options), prompts, strategy=options.strategy, drafter=options.drafter, num_draft_tokens=options.num_draft_tokens,
        batch_size=options.batch_size, max_new_tokens=options.max_new_tokens, sampling=_sampling(options), seed=options.seed,
        deterministic=options.deterministic, graphs=None if options.graphs else False, compile=options.compile,
        record=options.record is not None, on_interrupt="partial",
    )  # fmt: skip
    for prompt, text, status in zip(prompts, result.texts, result.status, strict=True):
        print(harmless(f"{prompt}▸{text}{_UNFINISHED.get(status, '')}\n{'─' * 60}"))
    _print(result.summary)
    if options.record is not None:
        _save(result.trace, options.record)
    check_finished(result.status)


def _sampling(options: argparse.Namespace) -> "SamplingParams | None":
    from specviz.engine.sampling import SamplingParams

    if options.temperature is not None:
        return SamplingParams(
            options.temperature, options.top_k, options.top_p, options.coupling or "rejection"
        )
    for name in ("top_k", "top_p", "coupling"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} {getattr(options, name)} comes without a temperature; give --temperature too"
            )
    return None


def bench(options: argparse.Namespace) -> None:
    from specviz.bench import failures, readable, run_bench, sections
    from specviz.bench.asked import check_pyarrow, grids, prompts, runner, sources
    from specviz.bench.report import save_report

    if options.parquet:
        check_pyarrow()
    path = options.out / "bench.csv"
    table, conditions = run_bench(
        sources(options), prompts(options), grids(options), path, limit=options.limit,
        recording=options.recording, turns=options.turns, fresh=options.fresh, runner=runner(options),
    )  # fmt: skip
    for heading, part in sections(table):
        print(f"\n{heading}\n\n{readable(part)}")
    print("".join(f"\nno speed: {text}" for text in failures(table)))
    _print_conditions(conditions)
    written = [
        path,
        path.with_suffix(".json"),
        save_report(table, conditions, options.report or path.with_suffix(".html")),
    ]
    if options.parquet:
        with replacing(path.with_suffix(".parquet")) as partial:
            table.to_parquet(partial, index=False)
        written.append(path.with_suffix(".parquet"))
    _written(written)


def ceilings(options: argparse.Namespace) -> None:
    from specviz.engine.models.pair import find_device
    from specviz.studies.ceilings import measure_ceilings
    from specviz.util.files import save_measured

    table, conditions = measure_ceilings(find_device(options.device), options.dtypes)
    print(table.to_string(index=False, float_format="{:.4g}".format, na_rep=""))
    _print_conditions(conditions)
    name = "-".join(re.findall(r"[a-z0-9]+", str(conditions["device"]).lower()))
    _written(
        save_measured(table, conditions, options.out or Path(f"figures/data/ceilings-{name}.csv"))
    )


def cost(options: argparse.Namespace) -> None:
    from specviz.studies.cost import Case, asked

    case: Case = asked(options)
    largest = None if options.memory_gb is None else case.largest_batch(options.memory_gb)
    floors, paying, memory, roofline = case.floors(), case.paying(), case.memory(), case.roofline
    where = f"K = {case.num_draft_tokens}, T = {case.slots:g}, on {roofline.ceilings.device} in {roofline.dtype}"
    print(f"\nThe least time of each phase: {case.how.name}, {where}\n")
    _print(floors)
    print(
        "\nWhat speculation has to bring to break even: a mean acceptance length, or an acceptance rate of each draft\n"
    )
    _print(paying)
    print(f"\nMemory for {case.prompt_tokens} + {case.max_new_tokens} tokens a row\n")
    _print(memory)
    print("" if largest is None else f"\nThe largest B in {options.memory_gb:g} GB: {largest}")


def survey(options: argparse.Namespace) -> None:
    import specviz as sv
    from specviz.studies.survey import survey as run_survey

    prompts = sv.load_prompts(limit=options.limit)
    found = run_survey(
        load(options), prompts, batch_size=options.batch_size, num_draft_tokens=options.num_draft_tokens,
        max_new_tokens=options.max_new_tokens,
    )  # fmt: skip
    meta, telling = found.reference.meta, found.telling_prompt
    print(
        f"\n{len(prompts)} prompts, B = {options.batch_size}, K = {options.num_draft_tokens}, on {meta['device']} in {meta['dtype']}\n"
    )
    print(
        found.table.drop(columns=["strategy", "options"])
        .round(3)
        .set_axis(found.names)
        .T.to_string()
    )
    print(
        f"\nWhat became of prompt {telling}, after {prompts[telling][-60:]!r}; ‖ is where a text leaves the one written alone\n"
    )
    for name, text in found.texts(telling).items():
        print(harmless(f"{name:>30}: {text}"))
    if options.out is not None:
        _written(found.save(options.out))


def agreement(options: argparse.Namespace) -> None:
    from specviz.prompts import load_prompts, spread
    from specviz.studies.agreement import Cells, measure_agreement

    source = "bundled" if options.spec_bench is None else "spec_bench"
    prompts = spread(load_prompts(source, options.spec_bench), options.limit)
    modes = (False, True) if options.deterministic else (False,)
    cells = Cells(
        options.strategies or Cells.strategies, options.batch_sizes, modes, num_draft_tokens=options.num_draft_tokens,
        max_new_tokens=options.max_new_tokens, max_prompt_tokens=options.max_prompt_tokens,
    )  # fmt: skip
    pair = load(options)
    dtype = str(pair.target.dtype).removeprefix("torch.")
    path = options.out or Path(f"figures/data/agreement-{dtype}.csv")
    table, conditions = measure_agreement(pair, prompts, cells, path, source=source)
    print(table.to_string(index=False, float_format="{:.4g}".format))
    _print_conditions(conditions)
    _written([path, path.with_suffix(".json")])


def couplings(options: argparse.Namespace) -> None:
    from specviz.prompts import load_prompts
    from specviz.studies.couplings import measure_couplings

    table, conditions = measure_couplings(
        load(options), load_prompts(), options.temperatures, options.seeds, batch_size=options.batch_size,
        num_draft_tokens=options.num_draft_tokens, max_new_tokens=options.max_new_tokens,
    )  # fmt: skip
    _print(table)
    _print_conditions(conditions)
    _keep(table, conditions, options.out)


def losses(options: argparse.Namespace) -> None:
    from specviz.prompts import load_prompts
    from specviz.studies.losses import measure_losses

    table, conditions = measure_losses(
        load(options), load_prompts(limit=options.limit), options.batch_sizes, num_draft_tokens=options.num_draft_tokens,
        max_new_tokens=options.max_new_tokens, repetitions=options.repetitions,
    )  # fmt: skip
    _print(table)
    _print_conditions(conditions)
    _keep(table, conditions, options.out)


def moves(options: argparse.Namespace) -> None:
    import torch

    from specviz.studies.moves import measure_moves

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    table, conditions = measure_moves(device, options.rows, options.slots)
    _print(table)
    _keep(table, conditions, options.out)


def overhead(options: argparse.Namespace) -> None:
    from specviz.prompts import load_prompts
    from specviz.studies.overhead import measure_overhead

    table, conditions = measure_overhead(
        load(options), load_prompts(limit=options.limit), batch_sizes=options.batch_sizes, num_draft_tokens=options.num_draft_tokens,
        max_new_tokens=options.max_new_tokens, repetitions=options.repetitions,
    )  # fmt: skip
    _print(table)
    _print_conditions(conditions)
    _keep(table, conditions, options.out)


def simulate(options: argparse.Namespace) -> None:
    from specviz.prompts import load_prompts
    from specviz.studies.simulate import Plan, source_of

    plan = Plan.of(options)
    source = source_of(
        options,
        lambda: (load(options), load_prompts(limit=32 if options.study == "held_out" else 8)),
    )
    table, conditions = plan.fitting(source).answer(source, options.study)
    _print(plan.shown(table))
    _print_conditions(conditions)
    _keep(table, conditions, options.out)


def figures(options: argparse.Namespace) -> None:
    from specviz.studies.figures import make_figures

    for path in make_figures(options.out):
        print(path)


def train(options: argparse.Namespace) -> None:
    from specviz.zoo.pipeline import Budget, train_pair

    asked = {
        "target_steps": options.target_steps,
        "draft_steps": options.draft_steps,
        "continuations": options.continuations,
    }
    budget = Budget(**{name: steps for name, steps in asked.items() if steps is not None})
    weights = train_pair(options.out, budget, device=options.device, compile=options.compile)
    print(
        f"{weights} holds the pair; use load_pair({str(weights / 'target')!r}, {str(weights / 'draft')!r})"
    )


def evaluate(options: argparse.Namespace) -> None:
    from specviz.prompts import load_prompts
    from specviz.zoo.measure import measure_pair

    pair = load(options)
    _print(
        measure_pair(
            pair,
            load_prompts(),
            num_draft_tokens=options.num_draft_tokens,
            max_new_tokens=options.max_new_tokens,
        )
    )


def _print(table: "pd.DataFrame", decimals: int = 3) -> None:
    print(harmless(table.round(decimals).to_string(index=False)))


def _print_conditions(conditions: dict[str, object]) -> None:
    print(
        "\n"
        + ", ".join(f"{name} {value}" for name, value in conditions.items() if name != "versions")
    )


def _keep(table: "pd.DataFrame", conditions: dict[str, object], path: Path | None) -> None:
    from specviz.util.files import save_measured

    if path is not None:
        _written(save_measured(table, conditions, path))


def _written(paths: list[Path]) -> None:
    print("written to " + " and ".join(map(str, paths)))


def _save(trace: object, path: Path) -> None:
    make_folder(path.parent)
    trace.save(path)  # type: ignore[attr-defined]
    print(f"{trace} saved as {path} ({path.stat().st_size / 1e6:.1f} MB)")


def replay(options: argparse.Namespace) -> None:
    from specviz.views.stepper.widget import save_replay

    out = options.out or options.run_file.with_suffix(".html")
    save_replay(options.run_file, out, options.other, options.step)
    hint = "; open it in a browser and press ? for the keys" if out.suffix == ".html" else ""
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB){hint}")
