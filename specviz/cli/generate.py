"""`specviz generate`: decode prompts and print the texts."""

import argparse
from pathlib import Path
from typing import Any

import specviz as sv
from specviz.cli.exit import check_finished
from specviz.engine.names import (
    COUPLINGS,
    DRAFTER_NAMES,
    SELECTOR_NAMES,
    STRATEGY_NAMES,
    WITHOUT_TEMPERATURE,
    check_temperature,
    check_top_p,
    parse,
    require_known,
)
from specviz.studies.arguments import (
    add_lengths,
    add_models,
    check_counts,
    check_models,
    file_path,
    int_or_word,
    integer,
    lengths,
    load_models,
    number,
)
from specviz.studies.output import print_table
from specviz.util.files import check_writable, make_folder
from specviz.util.text import harmless, size
from specviz.util.validate import require_choice, require_text

_UNFINISHED = {
    "interrupted": " [interrupted]",
    "not_finite": " [ended: the target's logits were non-finite]",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompts", nargs="*", help="prompts (the bundled ones)")
    add_models(parser)
    add_lengths(parser, draft_tokens=int_or_word)
    parser.add_argument("--batch-size", type=integer, default=8, metavar="B")
    text = "eqspec, exspec, rollback ...; with options: exspec:window=32,fallback=wait; an unknown "
    text += "name lists them (%(default)s)"
    parser.add_argument("--strategy", default="inplace", metavar="NAME", help=text)
    text = "model, lookup, or a draft head such as eagle3; with options: tree:width=3, "
    text += "synthetic:rates=0.9/0.8/0.7 (%(default)s)"
    parser.add_argument("--drafter", default="model", metavar="NAME", help=text)
    names = "drafts to verify: everything, tetris, threshold, tetris+extra=3 ... (%(default)s)"
    parser.add_argument("--selector", default="everything", help=names)
    parser.add_argument("--temperature", type=number, help="sample at this temperature (greedy)")
    parser.add_argument("--top-k", type=integer, help="sample from the k most likely tokens")
    text = "sample from the most likely tokens that reach this probability together"
    parser.add_argument("--top-p", type=number, help=text)
    text = "how drafts are accepted when sampling: rejection (default), gumbel, or typical, which "
    text += "changes the distribution"
    parser.add_argument("--coupling", help=text)
    parser.add_argument("--seed", type=integer, default=0, help="of all sampling (%(default)s)")
    text = "run all forwards at one shape, so that no text depends on the batch around it"
    parser.add_argument("--deterministic", action="store_true", help=text)
    text = "capture the phases of a round as CUDA graphs where possible"
    parser.add_argument("--graphs", action="store_true", help=text)
    text = "compile the models' forwards with torch.compile; slow at first"
    parser.add_argument("--compile", action="store_true", help=text)
    text = "CPU threads (1 if the target has fewer than 50 million parameters, else all)"
    parser.add_argument("--num-threads", type=integer, metavar="N", help=text)
    parser.add_argument(
        "--record", type=file_path, metavar="PATH", help="save the recorded run here"
    )


def run(options: argparse.Namespace) -> None:
    _check(options)
    prompts = options.prompts or sv.load_prompts()
    how = _how(options)
    result = sv.generate(
        load_models(options),
        prompts,
        record=options.record is not None,
        on_interrupt="partial",
        **how,
    )
    for prompt, text, status in zip(prompts, result.texts, result.status, strict=True):
        print(harmless(f"{prompt}▸{text}{_UNFINISHED.get(status, '')}\n{'─' * 60}"))
    print_table(result.summary)
    if options.record is not None:
        save_trace(result.trace, options.record)
    check_finished(result.status)


def _check(options: argparse.Namespace) -> None:
    """Raise ValueError or WriteError for what cannot be used, as far as it shows without torch."""
    check_models(options)
    check_counts(
        options, "num_draft_tokens", "max_new_tokens", "batch_size", "top_k", "num_threads"
    )
    check_counts(options, "seed", minimum=0)
    for i, prompt in enumerate(options.prompts):
        require_text(f"prompts[{i}]", prompt)
    for name in ("top_k", "top_p", "coupling"):
        value = getattr(options, name)
        if value is not None and options.temperature is None:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} {value} needs a temperature; give --temperature too")
    _check_names(options)
    if options.record is not None:
        check_writable(options.record)


def _check_names(options: argparse.Namespace) -> None:
    """Raise ValueError for a name that is unknown, and for numbers that no sampling has."""
    require_known("strategy", STRATEGY_NAMES, parse(options.strategy)[0])
    require_known("drafter", DRAFTER_NAMES, parse(options.drafter)[0])
    require_known("selector", SELECTOR_NAMES, options.selector.partition("+")[0])
    if options.temperature is not None:
        check_temperature(options.temperature, WITHOUT_TEMPERATURE)
    if options.top_p is not None:
        check_top_p(options.top_p)
    if options.coupling is not None:
        require_choice("coupling", options.coupling, COUPLINGS)


def _how(options: argparse.Namespace) -> dict[str, Any]:
    """Return how to decode, as arguments of `specviz.generate`. Raise ValueError for wrong ones."""
    from specviz.bench.methods import proposer, verifier
    from specviz.engine.options import Options
    from specviz.engine.registry import make
    from specviz.engine.strategies import STRATEGIES

    how = {
        "strategy": make("strategy", STRATEGIES, *parse(options.strategy)),
        "drafter": proposer(options.drafter),
        "selector": verifier(options.selector),
        "batch_size": options.batch_size,
        "sampling": _sampling(options),
        "seed": options.seed,
        "deterministic": options.deterministic,
        "graphs": None if options.graphs else False,
        "compile": options.compile,
        "num_threads": options.num_threads,
        **lengths(options),
    }
    Options(**how)  # checks them, before a model is loaded
    return how


def _sampling(options: argparse.Namespace) -> "sv.SamplingParams | None":
    if options.temperature is None:
        return None
    coupling = "rejection" if options.coupling is None else options.coupling
    return sv.SamplingParams(options.temperature, options.top_k, options.top_p, coupling)


def save_trace(trace: "sv.Trace | None", path: Path) -> None:
    """Save a recorded run and print where it is. Raises WriteError."""
    assert trace is not None
    make_folder(path.parent)
    trace.save(path)
    print(f"{trace} saved as {path} ({size(path.stat().st_size)})")
