"""`specviz metrics`: what a server's Prometheus page says about speculative decoding."""

from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from specviz.cli.shared import NOWHERE, Device, print_table
from specviz.util.text import harmless
from specviz.util.validate import require_int, require_ints, require_positive

if TYPE_CHECKING:
    import pandas as pd

    from specviz.servers import Counters

MOST = 2**31 - 1
CHOICE = [
    "batch_size", "mean_acceptance_length", "speedup", "best_num_draft_tokens", "best_speedup",
]  # fmt: skip


def metrics(
    source: Positional[str],
    *,
    since: Path | None = None,
    timeout: float = 10.0,
    device: Device = NOWHERE,
    batch_sizes: tuple[int, ...] = (1, 8, 32),
    prompt_tokens: int = 512,
    max_new_tokens: int = 128,
) -> None:
    """Read a server's counters of speculative decoding.

    Args:
        source: address of a server, http://..., or a file in which its page was saved.
        since: a page saved earlier: read what was counted after it.
        timeout: seconds that the server may take.
        device: for which K is chosen.
        batch_sizes: with --shapes: each B for which K is chosen.
        prompt_tokens: with --shapes: of every request.
        max_new_tokens: with --shapes: of every request.
    """
    require_positive("timeout", timeout)
    require_ints("batch_sizes", batch_sizes, maximum=MOST)
    require_int("prompt_tokens", prompt_tokens, maximum=MOST)
    require_int("max_new_tokens", max_new_tokens, maximum=MOST)
    roofline = device.load()

    from specviz.servers import read_page

    found = read_page(source, since=since, timeout_s=timeout)
    choices: list[pd.DataFrame | None] = []
    for counters in found:
        rates = counters.likely_rates
        if roofline is None or rates is None:
            choices.append(None)
            continue
        from specviz.generation.cost import Case

        lengths = (len(rates), prompt_tokens, max_new_tokens)
        choices.append(Case(roofline, batch_sizes, *lengths, rates=rates.tolist()).paying()[CHOICE])
    for counters, choice in zip(found, choices, strict=True):
        _show(counters, choice)


def _show(counters: "Counters", choice: "pd.DataFrame | None") -> None:
    name = counters.model or "(no name)"
    print(harmless(f"\n{counters.engine}, model {name}\n"))
    print_table(counters.summary())
    print("\nWhat its own log calls acceptance, and the mean acceptance length that follows\n")
    print_table(counters.definitions())
    positions = counters.positions()
    if len(positions):
        print("\nAcceptance by position, of all rounds and of those that got there\n")
        print_table(positions)
    if choice is not None:
        print("\nThe cost model: speedup at the server's K, and the best K up to it\n")
        print_table(choice)
    print("\nWhat this page does not say:")
    for sentence in counters.unanswered():
        print(f"- {sentence}")
