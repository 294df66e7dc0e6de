"""Rows of a benchmark written by hand, as its log holds them."""

from typing import Any

HOSTILE = "</script><script>alert(1)</script>"


def row(
    strategy: str, speed: float | None, size: int = 4, repetition: int = 0, **changes: object
) -> dict[str, Any]:
    """Return a row. `changes` replace values of the cell or of what was measured."""
    drafts = strategy not in ("autoregressive", "hf_generate")
    cell = {
        "pair": "p",
        "device": None,
        "dtype": None,
        "max_new_tokens": 64,
        "prompt_tokens": None,
        "batch_size": size,
        "strategy": strategy,
        "drafter": "model" if drafts else "none",
        "num_draft_tokens": 5 if drafts else 0,
    }
    cell |= {name: changes.pop(name) for name in list(changes) if name in cell}
    measured = {
        "repetition": repetition,
        "created": f"2026-01-0{repetition + 1}T00:00:00",
        "exact_match": 1.0,
        "near_ties": 0,
        "mean_acceptance_length": 3.0,
        "rounds": 7,
        "new_tokens": 99,
        "tokens_per_s": speed,
        "failure": "" if speed else "it <broke>",
        "device_name": "cpu",
        "dtype": "float32",
        "prompts": 8,
        "threads": 2,
    }
    versions = {"specviz": "1", "torch": "2", "transformers": "5", "python": "3"}
    return {"cell": cell, "target": "T", "draft": "D", **measured, **versions, **changes}


def sample() -> list[dict[str, Any]]:
    """Return the rows of two sections.

    The first has three methods at two B, one of them with a drafter of a hostile name, and a cell
    that failed.
    """
    rows = []
    for size in (1, 4):
        for i in range(2):
            rows.append(row("autoregressive", 100.0 * size, size, i))
            speed = (150.0 + 10 * i) * size
            rows.append(row("inplace", speed, size, i, recorded_tokens_per_s=130.0 * size))
        rows.append(row("hf_generate", 80.0 * size, size, recorded_tokens_per_s=None))
    rows.append(row("inplace", 120.0, 4, drafter=HOSTILE))
    rows.append(row(f"exspec:{HOSTILE}", None, 4))
    rows.append(row("inplace", 70.0, 1, max_new_tokens=128))
    return rows
