"""`specviz generate`: decode prompts and print the texts."""

from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

import specviz as sv
from specviz.cli.exit import check_finished
from specviz.cli.shared import EMBEDDED, Models, print_table
from specviz.engine.names import WITHOUT_TEMPERATURE, check_temperature, parse
from specviz.util.files import check_writable, make_folder
from specviz.util.text import harmless, size
from specviz.util.validate import require_text

_UNFINISHED = {
    "interrupted": " [interrupted]",
    "not_finite": " [ended: the target's logits were non-finite]",
}


def generate(
    prompts: Positional[tuple[str, ...]] = (),
    *,
    pair: Models = EMBEDDED,
    num_draft_tokens: int | Literal["auto"] = 5,
    max_new_tokens: int = 64,
    batch_size: int = 8,
    strategy: str = "inplace",
    drafter: str = "model",
    selector: str = "everything",
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    coupling: str | None = None,
    seed: int = 0,
    deterministic: bool = False,
    graphs: bool = False,
    compile: bool = False,
    num_threads: int | None = None,
    record: Path | None = None,
) -> None:
    """Decode prompts and print the texts.

    Args:
        prompts: prompts (the bundled ones).
        pair: the models.
        num_draft_tokens: K, draft tokens a row and round.
        max_new_tokens: budget of each prompt.
        batch_size: B.
        strategy: eqspec, exspec, rollback ...; with options: exspec:window=32,fallback=wait; an
            unknown name lists them.
        drafter: model, lookup, or a draft head such as eagle3; with options: tree:width=3,
            synthetic:rates=0.9/0.8/0.7.
        selector: drafts to verify: everything, tetris, threshold, tetris+extra=3 ...
        temperature: sample at this temperature (greedy).
        top_k: sample from the k most likely tokens.
        top_p: sample from the most likely tokens that reach this probability together.
        coupling: how drafts are accepted when sampling: rejection (the default) or gumbel.
        seed: of all sampling.
        deterministic: run all forwards at one shape, so that no text depends on the batch.
        graphs: capture the phases of a round as CUDA graphs where possible.
        compile: compile the models' forwards with torch.compile; slow at first.
        num_threads: CPU threads (1 if the target has fewer than 50 million parameters, else all).
        record: save the recorded run here.
    """
    from specviz.bench.cells import proposer, verifier
    from specviz.engine.options import Options
    from specviz.engine.registry import make
    from specviz.engine.strategies import STRATEGIES

    for i, prompt in enumerate(prompts):
        require_text(f"prompts[{i}]", prompt)
    how: dict[str, Any] = {
        "strategy": make("strategy", STRATEGIES, *parse(strategy)),
        "drafter": proposer(drafter),
        "selector": verifier(selector),
        "batch_size": batch_size,
        "num_draft_tokens": num_draft_tokens,
        "max_new_tokens": max_new_tokens,
        "sampling": _sampling(temperature, top_k=top_k, top_p=top_p, coupling=coupling),
        "seed": seed,
        "deterministic": deterministic,
        "graphs": None if graphs else False,
        "compile": compile,
        "num_threads": num_threads,
    }
    Options(**how)  # checks them, before a model is loaded
    if record is not None:
        check_writable(record)
    texts = list(prompts) or sv.load_prompts()
    recording = record is not None
    result = sv.generate(pair.load(), texts, record=recording, on_interrupt="partial", **how)
    for prompt, text, status in zip(texts, result.texts, result.status, strict=True):
        print(harmless(f"{prompt}▸{text}{_UNFINISHED.get(status, '')}\n{'─' * 60}"))
    print_table(result.summary)
    if record is not None:
        save_trace(result.trace, record)
    check_finished(result.status)


def _sampling(temperature: float | None, **options: Any) -> "sv.SamplingParams | None":
    given = {name: value for name, value in options.items() if value is not None}
    if temperature is not None:
        check_temperature(temperature, WITHOUT_TEMPERATURE)
        return sv.SamplingParams(temperature, **given)
    for name, value in given.items():
        option = name.replace("_", "-")
        raise ValueError(f"--{option} {value} needs a temperature; give --temperature too")
    return None


def save_trace(trace: "sv.Trace | None", path: Path) -> None:
    """Save a recorded run and print where it is. Raises WriteError."""
    assert trace is not None
    make_folder(path.parent)
    trace.save(path)
    print(f"{trace} saved as {path} ({size(path.stat().st_size)})")
