"""`specviz bench`: strategies and baselines on equal work, every text compared with decoding alone.

Goes on where it was interrupted.
"""

from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from specviz.cli.exit import NotPassedError, keeping
from specviz.cli.shared import (
    DtypeName,
    check_both,
    print_conditions,
    print_table,
    print_written,
)
from specviz.prompts import load_prompts, spread
from specviz.util.files import check_writable
from specviz.util.text import harmless

if TYPE_CHECKING:
    from specviz.bench import Grid, OnRay

# A draft with random weights assists nothing, so hf_assisted is left out.
FOR_SHAPES = ("autoregressive", "hf_generate", "rollback", "eqspec", "exspec", "inplace")


def bench(
    *,
    check: Path | None = None,
    target: str | None = None,
    draft: str | None = None,
    device_map: str | None = None,
    heads: Path | None = None,
    shapes: tuple[str, ...] = (),
    spec_bench: Path | None = None,
    limit: int | None = None,
    strategies: tuple[str, ...] = (),
    drafters: tuple[str, ...] = (),
    rates: tuple[float, ...] = (),
    batch_sizes: tuple[int, ...] = (1, 4, 8, 16),
    num_draft_tokens: tuple[int | Literal["auto"], ...] = (5,),
    max_new_tokens: tuple[int, ...] = (64,),
    prompt_tokens: tuple[int, ...] = (),
    dtype: tuple[DtypeName, ...] = (),
    device: tuple[str, ...] = (),
    repetitions: int = 3,
    turns: int = 1,
    recording: bool = False,
    ray: str | None = None,
    gpus: int | None = None,
    cpus: int | None = None,
    out: Path = Path("runs/bench"),
    report: Path | None = None,
    fresh: bool = False,
) -> None:
    """Measure strategies and baselines on the same prompts and budgets, each combination of lists.

    Every text is compared with what the target writes for that prompt alone. The same command goes
    on where it was interrupted.

    Args:
        check: measure nothing: check whether the methods in this earlier table (a bench.csv, or
            the folder of one) are compared at equal work; exit with 1 if not.
        target: hub id or folder of the target (the embedded pair).
        draft: hub id or folder of the draft.
        device_map: spread a large target over several GPUs, without --device: auto, balanced,
            sequential.
        heads: folder of draft heads of your own for that target.
        shapes: published pairs with random weights instead: qwen3-8b/0.6b ...
        spec_bench: SpecBench's question.jsonl, whose prompts take the place of the bundled ones.
        limit: how many prompts, of SpecBench's spread evenly over the file; beyond those that
            there are come their first halves, and so on.
        strategies: with options: exspec:window=32,fallback=wait (a standard list).
        drafters: model, lookup, synthetic, a draft head ... (model; synthetic with --shapes).
        rates: acceptance of synthetic drafts at positions 1..K (0.7 0.5 0.4 ...).
        batch_sizes: B.
        num_draft_tokens: K, draft tokens a row and round: numbers, or auto.
        max_new_tokens: budget of each prompt.
        prompt_tokens: cut prompts to their last N tokens.
        dtype: of both models.
        device: cpu, cuda, cuda:1 ... (CUDA where there is one).
        repetitions: runs of each cell.
        turns: turns that methods take, for a machine of uneven speed (1: one by one).
        recording: measure what recording costs, too.
        ray: run cells as tasks of Ray on the cluster at this address; local: on this machine.
        gpus: with --ray: GPUs of a cell on CUDA (1).
        cpus: with --ray: CPUs of a cell (a node's for a cell on the CPU, else 1).
        out: folder for bench.csv and bench.json.
        report: page with charts and tables (bench.html in that folder).
        fresh: discard an interrupted run in that folder, and replace a finished table.
    """
    check_options(dict(locals()))
    if check is not None:
        check_table(check)
        return

    import specviz.bench as library
    from specviz.bench.equal_work import by_line, comparisons, summary
    from specviz.bench.report import save_report

    axes: dict[str, Any] = {
        "batch_sizes": batch_sizes,
        "num_draft_tokens": num_draft_tokens,
        "max_new_tokens": max_new_tokens,
        "prompt_tokens": prompt_tokens or (None,),
        "dtypes": dtype or (None,),
        "devices": device or (None,),
        "repetitions": repetitions,
    }
    grids = grids_of(strategies, drafters, rates, bool(shapes), axes)
    stored = library.StoredPair(target, draft, device_map, None if heads is None else str(heads))
    runner = runner_of(ray, gpus, cpus)
    prompts = [] if shapes else load_prompts()
    if spec_bench is not None:
        prompts = spread(load_prompts("spec_bench", spec_bench), limit)
    path = out / "bench.csv"
    page = report or path.with_suffix(".html")
    for place in (path, page):
        check_writable(place)
    with keeping(lambda: kept(path)):
        table, conditions = library.run_bench(
            [library.ShapePair(name) for name in shapes] or [stored],
            prompts,
            grids,
            path,
            limit=limit,
            recording=recording,
            turns=turns,
            fresh=fresh,
            runner=runner,
        )
    for heading, section in library.sections(table):
        print(harmless(f"\n{heading}\n\n{library.readable(section)}"))
    for text in library.failures(table):
        print(harmless(f"\nno speed: {text}"))
    print_conditions(conditions)
    print_written([path, path.with_suffix(".json"), save_report(table, conditions, page)])
    found = comparisons(table)
    if len(found):
        print(f"\n{summary(found)}\n")
        print_table(by_line(found))


def check_options(given: dict[str, Any]) -> None:
    """Refuse options that exclude each other.

    Raises:
        ValueError: two of them do.
    """
    if given["check"] is not None:
        for name, option in signature(bench).parameters.items():
            if name != "check" and given[name] != option.default:
                raise ValueError(
                    f"--{name.replace('_', '-')} is for measuring, and --check PATH measures "
                    "nothing; leave one of them out"
                )
    check_both(given["target"], given["draft"])
    for name in ("target", "heads", "device_map", "spec_bench"):
        if given["shapes"] and given[name] is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} {given[name]} and --shapes exclude each other, since "
                "shapes have random weights and prompts; leave one of them out"
            )


def grids_of(
    strategies: tuple[str, ...],
    drafters: tuple[str, ...],
    rates: tuple[float, ...],
    shapes: bool,
    axes: dict[str, Any],
) -> "list[Grid]":
    """Return the standard grids, unless strategies, drafters or shapes are named.

    Raises:
        ValueError: as `Grid`, or there are rates without a synthetic drafter.
    """
    from specviz.bench import SYNTHETIC, Grid, standard
    from specviz.engine.drafters import drafter

    synthetic = drafter("synthetic", rates=list(rates)) if rates else SYNTHETIC
    if not (strategies or drafters or shapes):
        return standard(synthetic, **axes)
    names = drafters or (("synthetic",) if shapes else ("model",))
    if rates and "synthetic" not in names:
        shown = " ".join(map(str, rates))
        raise ValueError(f"--rates {shown} needs a synthetic drafter; give --drafters synthetic")
    chosen = [synthetic if name == "synthetic" else name for name in names]
    default = FOR_SHAPES if shapes else Grid.strategies
    return [Grid(strategies or default, drafters=chosen, **axes)]


def runner_of(ray: str | None, gpus: int | None, cpus: int | None) -> "OnRay | None":
    """Return what runs the cells; None: this process.

    Raises:
        ImportError: Ray is asked for and not installed.
        ValueError: GPUs or CPUs of a task are given without Ray.
    """
    from specviz.bench import OnRay

    if ray is not None:
        return OnRay(None if ray == "local" else ray, 1 if gpus is None else gpus, cpus)
    for name, number in (("gpus", gpus), ("cpus", cpus)):
        if number is not None:
            raise ValueError(f"--{name} {number} needs Ray; give --ray too")
    return None


def check_table(path: Path) -> None:
    """Print what is not at equal work in a table.

    Raises:
        ValueError, FileNotFoundError: the file is not a table, or has nothing to compare.
        NotPassedError: a line is broken.
    """
    from specviz.bench import comparisons, read_table
    from specviz.bench.equal_work import BROKEN, HOLDS, summary

    found = comparisons(read_table(path))
    if not len(found):
        raise ValueError(
            "the table has no two methods with a speed at one B, so there is nothing to check; "
            "measure autoregressive, or another method, too"
        )
    open_lines = found[found["state"] != HOLDS]
    for heading, section in open_lines.groupby("section", sort=False):
        print(harmless(f"\n{heading}\n"))
        print_table(section.drop(columns="section"))
    if BROKEN in set(found["state"]):
        raise NotPassedError(f"{summary(found)}; docs/compare.md says what to change")
    print(f"\n{summary(found)}")


def kept(path: Path) -> str:
    """Say what an interrupted benchmark leaves."""
    log = path.with_suffix(".jsonl.partial")
    if log.exists():
        return f"measurements so far are kept in {log}, and the same command goes on there"
    return "nothing is measured yet"
