"""Rows of a benchmark written by hand, as its log holds them."""

from typing import Any

HOSTILE = "</script><script>alert(1)</script>"


def row(
    strategy: str, speed: float | None, size: int = 4, repetition: int = 0, **changes: object
) -> dict[str, Any]:
    drafts = strategy not in ("autoregressive", "hf_generate")
    cell = {
        "pair": "p",
        "device": None,
        "dtype": None,
        "max_new_tokens": 64,
        "prompt_tokens": None,
        "batch_size": size,
    }
    cell |= {
        "strategy": strategy,
        "drafter": "model" if drafts else "none",
        "num_draft_tokens": 5 if drafts else 0,
    }
    found: dict[str, Any] = {
        "exact_match": 1.0,
        "near_ties": 0,
        "mean_acceptance_length": 3.0,
        "rounds": 7,
        "new_tokens": 99,
    }
    found |= {
        "tokens_per_s": speed,
        "failure": "" if speed else "it <broke>",
        "device_name": "cpu",
        "dtype": "float32",
        "prompts": 8,
    }
    found |= {
        "threads": 2,
        "specviz": "1",
        "torch": "2",
        "transformers": "5",
        "python": "3",
        "target": "T",
        "draft": "D",
    }
    found |= {name: value for name, value in changes.items() if name not in cell}
    cell |= {name: value for name, value in changes.items() if name in cell}
    return {
        "cell": cell,
        "repetition": repetition,
        "created": f"2026-01-0{repetition + 1}T00:00:00",
        **found,
    }


def sample() -> list[dict[str, Any]]:
    """Return the rows of two sections.

    The first has three methods at two B, one of them with a drafter of a hostile name, and a cell
    that failed.
    """
    rows = [row("autoregressive", 100.0 * size, size, i) for size in (1, 4) for i in range(2)]
    rows += [row("hf_generate", 80.0 * size, size, recorded_tokens_per_s=None) for size in (1, 4)]
    rows += [
        row("inplace", (150.0 + 10 * i) * size, size, i, recorded_tokens_per_s=130.0 * size)
        for size in (1, 4)
        for i in range(2)
    ]
    rows += [
        row("inplace", 120.0, 4, drafter=HOSTILE),
        row(f"exspec:{HOSTILE}", None, 4),
        row("inplace", 70.0, 1, max_new_tokens=128),
    ]
    return rows
