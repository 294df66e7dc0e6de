"""Write the tables of the docs again, from figures/data.

A page has `<!-- table NAME -->` above a table and `<!-- end -->` below it. What stands between them
is what TABLES gives for the name.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

FIGURES = Path(__file__).parents[1]
PAGES = (FIGURES.parent / "README.md", *sorted((FIGURES.parent / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
SIZES = (1, 4, 8, 16)
RATIO = "ratio_to_autoregressive"
SPEED = f"{{tokens_per_s:.0f}} ({{{RATIO}:.2f}})"


def written(page: str) -> str:
    """Return the text of a page with its tables as the data has them."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", page)


def read(name: str) -> pd.DataFrame:
    """Return a table of figures/data. K is text there, since it may be "auto"."""
    path = FIGURES / "data" / f"{name}.csv"
    return pd.read_csv(path, dtype={"num_draft_tokens": str})


def markdown(rows: pd.DataFrame) -> str:
    """Return a table of texts. Missing ones show as a dash."""
    head, *lines = (
        f"| {' | '.join(map(str, line))} |\n" for line in (rows, *rows.fillna("-").to_numpy())
    )
    return head + "|---" * rows.shape[1] + "|\n" + re.sub(r"(\d)%", r"\1 %", "".join(lines))


def listed(table: pd.DataFrame, columns: Mapping[str, str]) -> str:
    """Return a line for each entry. Columns are heading: how the entry's values show there."""
    entries = table.to_dict("records")
    return markdown(
        pd.DataFrame({head: [form.format(**e) for e in entries] for head, form in columns.items()})
    )


def crossed(table: pd.DataFrame, first: str, columns: str, form: str, head: str = "B = {}") -> str:
    """Return a line for each value of `first`, with a cell for each value of `columns`."""
    cells = table.assign(cell=[form.format(**e) for e in table.to_dict("records")])
    rows = list(dict.fromkeys(table[first]))
    wide = cells.pivot_table("cell", first, columns, "first", observed=True)
    wide = wide.loc[rows].reset_index()
    return markdown(wide.rename(columns=lambda name: name if name == first else head.format(name)))


def span(name: str, digits: int = 2, ends: str = "") -> str:
    """Return how a value shows with its interval."""
    low, high = (f"{{{ends or name}_{end}:.{digits}f}}" for end in ("low", "high"))
    return f"{{{name}:.{digits}f}} ({low} to {high})"


def way(table: pd.DataFrame) -> pd.Series:
    """Return the name of each method of a benchmark, with K where the run chose it."""
    k = table["num_draft_tokens"].map({"auto": ", K = auto"}).fillna("")
    return "`" + table["strategy"] + "`" + k


def speed(strategies: Sequence[str] = ()) -> str:
    """Return tokens a second with 64 new tokens, K = 5 and drafts of the pair's model."""
    table = read("bench").query(
        "max_new_tokens == 64 and drafter in ('none', 'model') "
        "and num_draft_tokens in ('0', '5', 'auto') and strategy != 'hf_assisted:confidence=0'"
    )
    if strategies:
        table = table[table["strategy"].isin(strategies) & (table["num_draft_tokens"] != "auto")]
    head = "tokens/s (ratio to `autoregressive`)"
    return crossed(table.assign(**{head: way(table)}), head, "batch_size", SPEED)


def unselected(name: str) -> str:
    """Return all tokens a second of a benchmark with one length of output and of drafts."""
    table = read(name)
    head = "tokens/s (ratio to `autoregressive`)"
    return crossed(table.assign(**{head: way(table)}), head, "batch_size", SPEED)


def openvino() -> str:
    table = read("openvino").query("strategy != 'autoregressive'")
    head = "ratio to `autoregressive`"
    return crossed(table.assign(**{head: way(table)}), head, "batch_size", f"{{{RATIO}:.2f}}")


def gpu() -> str:
    table = read("gpu-h200").sort_values(["batch_size", "strategy", "round_ms"])
    columns = {"B": "{batch_size}", "method": "`{strategy}`", "ms a round": "{round_ms:.1f}"}
    return listed(table, {**columns, "of which drafting": "{draft_ms:.1f}"})


def survey() -> str:
    table = read("survey")
    table["options"] = (", `" + table["options"] + "`").fillna("")
    table["mb"] = table["realigned_mb"] + table["compacted_mb"]
    columns = {
        "strategy": "`{strategy}`{options}",
        "exact match": "{exact_match:.0%}",
        "first broken rule": "{first_violation}",
        "acceptance length": "{mean_acceptance_length:.2f}",
        "thrown away": "{discarded_tokens}",
        "holes, padding": "{hole_share:.0%}, {padding_share:.0%}",
        "K/V copied, MB": "{mb:.0f}",
        "rounds": "{rounds}",
    }
    return listed(table.fillna({"first_violation": "-"}), columns)


def agreement() -> str:
    rows = []
    for dtype, prompts in (("float32", 480), ("float64", 480), ("bfloat16", 96)):
        for deterministic, cells in read(f"agreement-{dtype}").groupby("deterministic"):
            row = cells[["near_ties", "unexplained"]].sum().to_dict()
            row["dtype"] = f"{dtype}{', `deterministic=True`' if deterministic else ''}"
            row["cells"], row["texts"] = len(cells), len(cells) * prompts
            row["worst"], row["best"] = cells["exact_match"].agg(["min", "max"])
            rows.append(row)
    columns = {
        "dtype": "{dtype}",
        "strategies x B": "{cells}",
        "texts": "{texts:,}",
        "exact, worst cell": "{worst:.0%}",
        "best cell": "{best:.0%}",
        "near ties": "{near_ties}",
        "unexplained": "{unexplained}",
    }
    return listed(pd.DataFrame(rows), columns)


def couplings() -> str:
    columns = {
        "temperature": "{temperature}",
        "coupling": "{coupling}",
        "mean acceptance length": span("mean_acceptance_length"),
    }
    return listed(read("couplings"), columns)


def selection() -> str:
    columns = {
        "K": "{num_draft_tokens}",
        "uniform K": "{tokens_per_round:.2f}",
        "TETRIS": "{tetris_tokens_per_round:.2f}",
        "gain, %": span("gain_percent", 1, "gain"),
        "p99 of rounds a token": "{p99_rounds_per_token:.2f}, {tetris_p99_rounds_per_token:.2f}",
        "more rounds of a static batch": "{static_rounds_percent:.0f}%",
    }
    return listed(read("selection").query("batch_size == 32 and extra == 2"), columns)


def trees() -> str:
    names = {
        ("chain", False, False): "chain",
        ("tree", False, False): "tree, by q",
        ("tree", False, True): "tree, calibrated",
        ("chain", True, False): "TETRIS, chains",
        ("tree", True, True): "TETRIS, trees",
    }
    table = read("trees").query("nodes in (2, 4, 8, 12, 16) and depth != 6")
    kinds = zip(table["drafts"], table["over_batch"], table["calibrated"], strict=True)
    table = table.assign(kind=[names.get(kind) for kind in kinds]).dropna(subset="kind")
    table["kind"] = pd.Categorical(table["kind"], list(names.values()))
    ends = zip(table["gain_low"], table["gain_high"], strict=True)
    gain = [f" ({low:.1f} to {high:.1f}%)" for low, high in ends]
    table["gain"] = pd.Series(gain, table.index).where(table["kind"] != "chain", "")
    table = table.rename(columns={"nodes": "N"})
    return crossed(table, "N", "kind", "{tokens_per_round:.2f}{gain}", "{}")


def heads() -> str:
    table = read("heads").query("drafter != 'none'")
    head = "drafter, tokens a round"
    names = []
    for strategy, drafter in zip(table["strategy"], table["drafter"], strict=True):
        how = " compiled" if "compile" in strategy else ""
        name = f"`{strategy}`" if strategy == "hf_assisted" else f'`"{drafter}"`{how}'
        names.append(name)
    lengths = table.groupby(names)["mean_acceptance_length"].first()
    table[head] = [f"{name}, {lengths[name]:.2f}" for name in names]
    return crossed(table, head, "batch_size", f"{{{RATIO}:.2f}}")


def heads_parts() -> str:
    names = {
        "clover-neither": "neither: Medusa, one layer",
        "clover-block": "block alone",
        "clover-gate": "gate alone",
        "clover": "both: Clover",
        "clover-silu": "both, SiLU gate",
        "eagle3": "EAGLE-3",
    }
    training = read("heads-training").query("share == 1").set_index("head").loc[list(names)]
    steps = read("heads-steps").query("share == 1 and step <= 5")
    accuracy = steps.pivot_table("top5", "head", "step").add_prefix("top")
    columns = {
        "head": "{name}",
        "tokens": "{millions:.2f}M",
        "length": span("length"),
        "top-5, step 1": "{top1:.3f}",
        **{str(step): f"{{top{step}:.3f}}" for step in (2, 3, 4, 5)},
    }
    table = training.join(accuracy).assign(millions=training["tokens"] / 1e6)
    return listed(table.assign(name=list(names.values())), columns)


def memory() -> str:
    table = read("memory").dropna(subset="percent")
    both = table.query("method == 'speculative'").merge(
        table.query("method == 'autoregressive'"), on="percent", suffixes=("", "_plain")
    )
    columns = {
        "budget": "{percent:.0f}%",
        "speculative: B": "{batch_size}",
        "prompts in chunks of": "{prefill_tokens:.0f}",
        "saved": "{saved_percent:.0f}%",
        "kept": "{retained_percent:.0f}%",
        "autoregressive: B": "{batch_size_plain}",
        "kept by it": "{retained_percent_plain:.0f}%",
    }
    return listed(both, columns)


def lanes() -> str:
    table = read("overlap")
    columns = {
        "B": "{batch_size}",
        "drafting, ms": "{draft_ms:.1f}",
        "verifying, ms": "{verify_ms:.1f}",
        "a step, ms": "{step_ms:.1f}",
        "efficiency": "{efficiency:.2f}",
        "needed": "{needed:.2f}",
        "gain": span("gain"),
        "as in the paper": "{published_gain:.2f}",
    }
    return listed(table.assign(needed=1 / table["predicted_gain"]), columns)


def laws() -> str:
    fits = read("laws-fits").query("over == 'tokens' and num_draft_tokens == '16'")
    drafts = read("laws-drafts").groupby("size").last().reset_index()
    columns = {
        "draft": "{size}",
        "parameters": "{parameters:,}",
        "length at 629k": span("length_k16"),
        "a doubling adds": span("per_doubling"),
        "R²": "{log_r2:.2f}",
        "error at 629k": span("log_error"),
    }
    return listed(fits.merge(drafts, left_on="at", right_on="size"), columns)


def states() -> str:
    names = {"mixer": "whole mixer", "rule": "rule alone", "inputs": "rule, inputs kept"}
    table = read("states")
    table = table[table["family"].isin(table.query("way == 'rule'")["family"])]
    ways = pd.Categorical(table["way"].map(names), list(names.values()))
    table = table.assign(way=ways, mb=table["state_bytes"] / 1e6)
    return crossed(table, "family", "way", "{ratio:.1f}, {mb:.1f} MB", "{}")


TABLES: dict[str, Callable[[], str]] = {
    "speed-all": speed,
    "speed": partial(speed, ("autoregressive", "hf_assisted", "eqspec", "exspec", "inplace")),
    "speed-compiled": partial(unselected, "compiled"),
    "speed-hybrid": partial(unselected, "bench-hybrid"),
    "openvino": openvino,
    "gpu": gpu,
    "survey": survey,
    "agreement": agreement,
    "couplings": couplings,
    "selection": selection,
    "trees": trees,
    "heads": heads,
    "heads-parts": heads_parts,
    "memory": memory,
    "lanes": lanes,
    "laws": laws,
    "states": states,
}

if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
