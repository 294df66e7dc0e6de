"""What the pages say was measured: their tables and numbers are those of figures/data.

The claims of a page are pieces of its text, with the numbers that the data has for them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tables
from tables import RATIO, SIZES

ROOT = Path(__file__).parents[1]
TETRIS = "inplace:selector=tetris+extra="
GRAPHS = "graphs=true,compile=true"
ALL = "as_published=True"

read = cache(tables.read)


def several(values: Iterable[float], form: str = ".2f", last: str = " and ") -> str:
    """Return values as a sentence lists them."""
    *first, final = (format(value, form) for value in values)
    return f"{', '.join(first)}{last}{final}"


def listed(values: Iterable[float]) -> str:
    return several(values, last=", ")


def bench(new_tokens: int = 64) -> pd.DataFrame:
    """Return entries of the benchmark at K = 5, by strategy and B."""
    table = read("bench").query("max_new_tokens == @new_tokens and num_draft_tokens in ('0', '5')")
    table = table[table["drafter"].isin(["none", "model"])]
    return table.set_index(["strategy", "batch_size"]).sort_index()


def ratios(strategy: str, new_tokens: int = 64) -> list[float]:
    return bench(new_tokens)[RATIO][strategy][list(SIZES)].tolist()


def both(strategy: str) -> str:
    published = listed(ratios(f"{strategy}:as_published=true"))
    return f"{listed(ratios(strategy))}; as published {published}"


def growth(strategy: str) -> float:
    """Return the speed at B = 8 over that at B = 1."""
    speeds = bench()["tokens_per_s"][strategy]
    return float(speeds[8] / speeds[1])


def grew(strategy: str) -> str:
    published = growth(f"{strategy}:as_published=true")
    return f"{growth(strategy):.1f} times, {published:.1f} as published"


def drafter_ratios(name: str, drafter: str) -> list[float]:
    table = read(name).query("strategy == 'inplace' and drafter == @drafter")
    return table.set_index("batch_size")[RATIO][list(SIZES)].tolist()


def moving(size: int) -> float:
    """Return how many per cent of an EQSPEC round its realignment takes."""
    table = read("overhead-cpu").query("strategy == 'eqspec' and batch_size == @size")
    return 100 * table.set_index("phase")["share"]["synchronise"]


def beside(size: int) -> float:
    """Return how many per cent of a round are spent beside the models' forwards."""
    table = read("overhead-cpu").query("strategy == 'inplace' and batch_size == @size")
    return 100 * table["beside_ms"].sum() / table["ms"].sum()


def habit(strategy: str, loss: str, column: str = RATIO) -> pd.Series:
    return read("losses").query("strategy == @strategy and loss == @loss")[column]


def selection(name: str = "selection", **where: object) -> pd.Series:
    """Return the entry of a drafter, K and e at B = 32."""
    table = read(name).query("batch_size == 32")
    for column, value in where.items():
        table = table[table[column] == value]
    return table.iloc[0]


def slower(size: int, extra: int) -> float:
    """Return by which share TETRIS is slower than a uniform K, each at its best K."""
    table = read("selection-speed").query("batch_size == @size")
    best = table.groupby("strategy")["tokens_per_s"].max()
    return float(1 - best[f"{TETRIS}{extra}"] / best["inplace"])


def tree(drafts: str, nodes: int, calibrated: bool = False, depth: int = 12) -> float:
    """Return the tokens a round of so many drafts a row."""
    table = read("trees").query("nodes == @nodes and drafts == @drafts and not over_batch")
    table = table[(table["calibrated"] == calibrated) & table["depth"].isin([depth, 20])]
    return table["tokens_per_round"].item()


def tree_speed(kind: str, size: int, strategy: str = "inplace") -> float:
    """Return the ratio at the better K."""
    table = read("trees-speed").query("strategy == @strategy and batch_size == @size")
    return table[table["drafter"].str.startswith(kind)][RATIO].max()


def trained(head: str, share: float = 1) -> pd.Series:
    return read("heads-training").query("head == @head and share == @share").iloc[0]


def gains(head: str, over: str) -> pd.Series:
    return read("heads-gains").query("head == @head and over == @over")["top5"]


def budget(method: str, percent: int) -> pd.Series:
    return read("memory").query("method == @method and percent == @percent").iloc[0]


def law(over: str, column: str) -> pd.Series:
    table = read("laws-fits").query("over == @over and num_draft_tokens == '16'")
    return table.set_index("at")[column]


def grouped(prompts: str) -> float:
    table = read("simulated-grouping").query("acceptance == 'source' and window == 128")
    return table.query("prompts == @prompts and batch_size == 8")["grouping_rate"].item()


def latency(load: float, policy: str) -> float:
    table = read("simulated-latency").query("load == @load and policy == @policy")
    return table["latency_p99_s"].item()


def families() -> tuple[int, int]:
    """Return how many families of causal LMs were tried, and how many are exact by default."""
    table = read("families")
    plain = table[table["changes"].isna() & (table["sampling"] == "greedy")]
    plain = plain[plain["dtype"] == "float32"].groupby("family")["outcome"].agg(set)
    exact = {"exact", "exact but for a near tie"}
    return table["family"].nunique(), sum(bool(each & exact) for each in plain)


def claims_of_results() -> Iterator[str]:
    yield f"{grew('eqspec')}; autoregressive decoding {growth('autoregressive'):.1f} |"
    yield f"at B = 1, 4, 8, 16: {both('eqspec')}. Realignment: {moving(4):.1f} % of a round"
    yield f"{grew('exspec')} | {both('exspec')}, with up to 32 requests in flight"
    exact = read("agreement-bfloat16").query("batch_size == 8 and strategy == 'eqspec'")
    share = exact.query("not deterministic")["exact_match"].item()
    texts = 480 * len(read("agreement-float32"))
    yield f"B = 8: {share:.0%} of 96, the others near ties | float32: 100% of {texts:,} texts"
    speeds = bench()["tokens_per_s"]
    behind = 1 - speeds["masking", 8] / speeds["inplace", 8]
    yield f"`masking` at B = 8: {ratios('masking')[2]:.2f}, {behind:.0%} slower than `inplace`"
    masking, repadding = read("survey").query("not valid")["exact_match"]
    yield f'`masking`, `positions="column"` {masking:.0%}, `repadding` {repadding:.0%}'
    gain = read("selection").query("batch_size == 32 and extra == 2")
    gain = gain[gain["num_draft_tokens"].astype(int) <= 6]["gain_percent"]
    yield f"K = 1 to 6: {gain.min():.1f} to {gain.max():.1f} % more"
    yield f"{slower(32, 1):.0%} fewer with e = 1, {slower(32, 2):.0%} fewer with e = 2"
    chain, by_q, calibrated = tree("chain", 4), tree("tree", 4), tree("tree", 4, True)
    yield f"4 drafts a row: chain {chain:.2f}, tree by q {by_q:.2f}, calibrated {calibrated:.2f}"
    chains, trees = (listed(tree_speed(kind, b) for b in (1, 8)) for kind in ("model", "tree"))
    yield f"at B = 1, 8: chains {chains}; calibrated trees {trees}"
    clover, medusa = trained("clover"), trained("clover-neither")
    yield f"after {clover['cpu_s']:.0f} to {medusa['cpu_s']:.0f} s of training"
    points = gains("clover", "clover-neither")
    lengths = f"{clover['length']:.2f} against {medusa['length']:.2f} tokens a round"
    yield f"training: {points.min():.0f} to {points.max():.0f} points | {lengths}"
    names = ("eagle3", "clover", "medusa")
    eagle, clover, medusa = (listed(drafter_ratios("heads-equal", name)) for name in names)
    fully = listed(drafter_ratios("heads", "eagle3"))
    equal = f"after two minutes of training: {eagle}; Clover {clover}; Medusa {medusa}"
    yield f"at B = 1, 4, 8, 16, K = 4: {fully} | {equal}"
    lanes = read("overlap")
    published, gain = listed(lanes["published_gain"]), listed(lanes["gain"])
    yield f"B = 4, 8, 16, 32: {published} | to all rows on both cores: {gain}"
    ours = [budget("speculative", share) for share in (35, 60)]
    kept, saved = zip(*((e["retained_percent"], e["saved_percent"]) for e in ours), strict=True)
    yield f"{kept[0]:.0f} % with {saved[0]:.0f} % less, {kept[1]:.0f} % with {saved[1]:.0f} % less"
    kept = [budget("autoregressive", share)["retained_percent"] for share in (35, 60)]
    yield f"autoregressive decoding keeps {kept[0]:.0f} % and {kept[1]:.0f} %"
    fit = law("tokens", "log_r2")
    yield f"over tokens R² {fit.min():.2f} to {fit.max():.2f}, and the lines bend up"
    fit = law("parameters", "log_r2")
    yield f"over parameters R² {fit.min():.2f} to {fit.max():.2f}"
    assisted = bench()[RATIO]["hf_assisted", 1]
    yield f"`hf_assisted`, K = 5: {assisted:.2f} | `inplace`, K = 5: {ratios('inplace')[0]:.2f}"


def claims_of_speed() -> Iterator[str]:
    speeds = read("agreement-bfloat16").pivot_table(
        "tokens_per_s", ["strategy", "batch_size"], "deterministic"
    )
    yield f"decoding in bfloat16 had {(speeds[True] / speeds[False]).median():.2f} of the speed"
    longer = several(ratios("inplace", 128))
    yield f"`inplace` is {longer} times as fast as autoregressive decoding at 1, 4, 8 and 16 rows"
    auto = read("auto").query("strategy == 'inplace'")
    auto = auto.pivot_table(RATIO, "batch_size", "num_draft_tokens")
    fixed = auto.drop(columns="auto")
    yield f"a run has {several(auto['auto'] / fixed.max(axis=1))} of the speed of the fastest K"
    yield f"picked after the measurement: {several(fixed.idxmax(axis=1).astype(int), 'd')} ("
    table = read("openvino").pivot_table(RATIO, "batch_size", "strategy")
    drafting, plain = table["inplace:compile=true"], table["autoregressive:compile=true"]
    theirs = table["openvino_speculative"]
    yield f"Compiled `inplace` has {several(drafting / theirs)} of its speed with drafts"
    times = several(theirs / table["openvino"])
    yield f"is {several(drafting / plain)} times as fast as no drafts, and OpenVINO {times} times"
    assert (drafting < theirs).all()
    forwards = several(map(beside, (1, 8, 16)), ".1f")
    yield f"realignment takes {several(map(moving, (4, 8, 16)), '.1f')} % of an `eqspec` round"
    yield f"beside the models' forwards {forwards} % at B = 1, 8 and 16"
    table = read("recording").set_index("strategy")
    lost = 1 - table["recorded_tokens_per_s"] / table["tokens_per_s"]
    yield f"up to {lost.max():.0%} of the speed, and {lost['inplace'].max():.0%} at most with `in"
    habits = [several(habit("eqspec", loss)) for loss in ("none", "keep_draft=False", ALL)]
    yield f"EQSPEC is {habits[0]} times as fast as autoregressive decoding with none"
    yield f"{habits[1]} with a draft that keeps no cache, which costs most"
    yield f"and {habits[2]} with all of them"
    yield f"EXSPEC with all habits keeps {several(habit('exspec', ALL, 'ratio_to_none'))} of its"
    mixed, same = grouped("mixed"), grouped("equal")
    yield f"is {mixed:.0%} with prompts of 10 to 59 tokens, and {same:.0%} with prompts of one leng"
    loads = (load for load in read("simulated-latency")["load"].unique() if load >= 0.7)
    later = [latency(load, "exspec") / latency(load, "eqspec") - 1 for load in loads]
    yield f"{100 * min(later):.0f} to {max(later):.0%} longer from 0.7 on"


def claims_of_drafts() -> Iterator[str]:
    free = selection(num_draft_tokens="1", extra=2)
    fair = selection("fairness", num_draft_tokens="1", extra=2, max_wait=1)
    gain = f"{fair['gain_percent']:.1f} of {free['gain_percent']:.1f} % of the gain"
    rounds = [each["static_rounds_percent"] for each in (fair, free)]
    yield f"`max_wait=1` leaves {gain}, and {rounds[0]:.0f} of {rounds[1]:.0f} % more rounds"
    yield f"it is {slower(8, 1):.0%} slower than the best uniform K at B = 8"
    yield f"and {slower(32, 1):.0%} at B = 32 with e = 1"
    yield f"with e = 1; {100 * slower(8, 2):.0f} and {slower(32, 2):.0%} with e = 2"
    keys = ["batch_size", "num_draft_tokens", "extra"]
    priced = read("selection").merge(read("packing"), on=keys).query("batch_size == 32")
    price = priced["packed_ms"] / priced["uniform_ms"]
    yield f"packed, {100 * price.min() - 100:.0f} to {price.max() - 1:.0%} at B = 32"
    left = 100 * ((1 + priced["gain_percent"] / 100) / price - 1)
    yield f"that leaves {several(left[priced['extra'] == 2], '.1f')} % at K = 1, 3 and 5"
    yield f"the largest gain in rounds is {read('selection')['gain_percent'].max():.1f} %"
    names = ("medusa", "eagle3")
    weak, strong = (
        selection("selection-heads", drafter=name, num_draft_tokens="3", extra=1) for name in names
    )
    weak, strong = (f"{e['gain_low']:.1f} to {e['gain_high']:.1f} %" for e in (weak, strong))
    yield f"at K = 3, e = 1 Medusa gains {weak}, EAGLE-3 {strong}"
    gains_of = [100 * tree("tree", n, True) / tree("chain", n) - 100 for n in (8, 12)]
    yield f"it gains {gains_of[0]:.0f} % at 8 drafts and {gains_of[1]:.0f} % at 12"
    flat = [tree("tree", nodes, True, 6) for nodes in (8, 16)]
    yield f"With 6 draft forwards a chain reaches {tree('chain', 6):.2f}"
    yield f"a calibrated tree {flat[0]:.2f} with 8 verified drafts and {flat[1]:.2f} with 16"
    yield f"a chain of 8 reaches {tree('chain', 8):.2f}"
    chain, grown = ([tree_speed(kind, b) for b in (1, 8)] for kind in ("model", "tree"))
    chosen = several(tree_speed("model", b, f"{TETRIS}2") for b in (1, 8))
    yield f"the best chain is {chain[0]:.2f} times as fast as autoregressive decoding"
    yield f"the best calibrated tree {grown[0]:.2f}, and at B = 8 {chain[1]:.2f}"
    yield f"{chain[1]:.2f} against {grown[1]:.2f}; TETRIS on chains {chosen} ("
    table = read("trees-speed")
    yield f"differ by up to {(table[f'{RATIO}_high'] / table[f'{RATIO}_low']).max() - 1:.0%})"
    moves = read("trees-moves").set_index(["strategy", "drafts"])
    target, draft = moves["target_slots_per_token"], moves["draft_slots_per_token"]
    here = f"{target['inplace', 'tree']:.2f} slots of the target's cache"
    yield f"`inplace` copies {here} and {draft['inplace', 'tree']:.2f} of the draft's"
    yield f"`eqspec` {target['eqspec', 'tree']:.2f} in place of {target['eqspec', 'chain']:.2f} in"
    slots = [moves["target_slots"]["masking", drafts] for drafts in ("chain", "tree")]
    yield f"its cache grows from {slots[0]} to {slots[1]} slots a row"
    wrong = read("biases").query("not lossless").set_index("judged")["total_variation_max"]
    yield f"up to {wrong.iloc[0]:.3f} in total variation from the target's"
    yield f"children by q up to {wrong.iloc[1]:.3f}, and TETRIS scored by the chosen"
    yield f"as published, up to {wrong.iloc[2]:.3f} ("


def claims_of_heads() -> Iterator[str]:
    faster = np.divide(drafter_ratios("heads", "eagle3"), drafter_ratios("heads", "model"))
    yield f"It is {several(faster)} times as fast at these B"
    table = read("heads").query("strategy == 'inplace' and batch_size == 1").set_index("drafter")
    share = table["draft_ms"] / table["round_ms"]
    yield f"Drafting takes {share['eagle3']:.0%} of its round at B = 1"
    yield f", and {share['model']:.0%} with the draft model"
    yield f"**DFlash** drafts in {share['dflash']:.0%} of a round"
    lengths = table["mean_acceptance_length"]
    fewer = 1 - lengths / lengths["eagle3"]
    yield f"its layer gains {fewer['mtp']:.0%} fewer tokens"
    yield f"all drafts, and gains {fewer['dflash']:.0%} fewer"
    yield f"**Clover** gains {1 - lengths['clover'] / lengths['model']:.0%} fewer tokens a round"
    table = read("heads-equal").groupby("drafter")["mean_acceptance_length"].first()
    equal = several(table[["eagle3", "clover", "medusa"]])
    yield f"EAGLE-3, Clover and Medusa gain {equal} tokens a round"
    seconds = read("heads-training").query("share == 1")["cpu_s"]
    yield f"Short trainings of {seconds.min():.0f} to {seconds.max():.0f} s of CPU time"
    yield f"grows with the head**: {several(gains('clover', 'clover-neither'), '.0f')} points of"
    yield f"which ships, by {several(-gains('clover', 'clover-silu'), '.0f')} points"
    right = read("heads-steps").query("share == 1").set_index(["head", "step"])["top1"].sort_index()
    alone, chains = (right[head].tolist() for head in ("eagle3-alone", "eagle3"))
    yield f"top-1 falls from {alone[0]:.2f} to {alone[1]:.2f}"
    yield f"with chains from {chains[0]:.2f} to {chains[1]:.2f}"
    quarter, half, whole = (trained("eagle3", share)["length"] for share in (0.25, 0.5, 1))
    yield f"adds {whole - half:.2f} tokens a round where the first added {half - quarter:.2f}"


def claims_of_the_notebook_on_heads() -> Iterator[str]:
    table = read("heads").query("strategy == 'inplace' and batch_size == 1").set_index("drafter")
    share = table["draft_ms"] / table["round_ms"]
    yield f"that takes {share['dflash']:.0%} of its round, and {share['model']:.0%} with the draft"


def claims_of_memory() -> Iterator[str]:
    least, most = budget("speculative", 35), budget("speculative", 100)
    whole = read("memory").iloc[0]
    yield f"B = {whole['batch_size']} without levers: {whole['generation_mb']:.1f} MB"
    kept = f"{least['retained_percent']:.0f} % of the throughput is left"
    yield f"With {least['saved_percent']:.0f} % less memory, {kept}"
    yield f"make room for {most['batch_size']} rows in place of {whole['batch_size']}"
    plain = budget("autoregressive", 35)["batch_size"]
    yield f"so it has {plain} rows against {least['batch_size']} at 35 %"
    table = read("chat").set_index("keep")
    read_again = table["read_tokens"] / table["read_tokens"]["none"]
    saved = [1 - read_again["all"].iloc[place] for place in (0, -1)]
    yield f"Kept K/V saves {saved[0]:.0%} of the tokens that the second and third turn read"
    yield f"and {saved[1]:.0%} at 60 % of the memory"
    seconds = table["turn_s"]
    yield f"{seconds['all'].iloc[0]:.1f} s with all kept and {seconds['none']:.1f} s with nothing"


def claims_of_lanes() -> Iterator[str]:
    table = read("overlap")
    yield f"**Lanes gain {100 * table['gain'].min() - 100:.0f} to {table['gain'].max() - 1:.0%}**"
    beyond = table.loc[table["gain_low"] > 1, "batch_size"]
    yield f"at B = {several(beyond, 'd')} in every repetition"
    for end in ("p50_s", "p99_s"):
        assert (table[f"two_{end}"] < table[f"one_{end}"]).all()
    (e,) = read("overlap-compiled").itertuples()
    gain = f"{e.gain:.2f} ({e.gain_low:.2f} to {e.gain_high:.2f})"
    yield f"the efficiency is {e.efficiency:.2f} and the gain {gain}"
    _, fixed = np.polyfit(table["batch_size"] / 2, table["verify_ms"], 1)
    yield f"fixed cost of a verification twice, {fixed:.1f} ms here"


def claims_of_laws() -> Iterator[str]:
    table = read("laws-drafts").pivot_table("length_k16", "size", "mark").diff(axis=1)
    first, last = table.iloc[:, 1], table.iloc[:, -1]
    yield f"The first doubling adds {first.min():.2f} to {first.max():.2f} tokens a round"
    yield f"the last one {last.min():.2f} to {last.max():.2f}"
    slope, start = law("tokens", "per_doubling"), law("tokens", "a")
    told = start["2x256"] + slope["2x256"] * np.log2(7.4e6)
    lengths = read("laws-lengths").query("size == 'shipped'").set_index("num_draft_tokens")
    yield f"predicts {told:.1f} tokens a round"
    yield f"It gains {lengths['length']['16']:.1f} at K = 16"
    fit = law("parameters", "log_r2")
    yield f"R² is {fit.iloc[0]:.2f} at the lowest mark and {fit.iloc[-1]:.2f} at the highest"
    speeds = read("laws-batch").query("size == 'shipped'").sort_values("speedup")
    best = speeds.groupby(["device", "batch_size"])["num_draft_tokens"].last()
    cpu, assumed = best["cpu"], best["assumed"]
    yield f"falls from {cpu[1]} at B = 1 to {cpu[64]} at B = 64 on the two CPU cores"
    yield f"from {assumed[1]} at B = 1 to {assumed[32]} at B = 32 and {assumed[128]} at B = 128"
    alone = read("laws-batch").query("device == 'cpu' and batch_size == 1")
    alone = alone[alone["mark"] == 524288].groupby("size")["speedup"].max()
    yield f"reaches {alone['2x256']:.2f} times autoregressive decoding, 1x64 {alone['1x64']:.2f}"
    ratio = read("states").set_index("family")["ratio"]["llama"]
    yield f"llama, whose layers keep K/V alone, takes {ratio:.1f} times as long"


def claims_of_compare() -> Iterator[str]:
    table = read("gpu-h200").query("batch_size == 1").set_index("strategy")
    captured, plain = table.loc[f"inplace:{GRAPHS}"], table.loc[f"autoregressive:{GRAPHS}"]
    ms, before = captured["round_ms"], table.loc["inplace", "round_ms"]
    yield f"took `inplace` from {before:.0f} to {ms:.1f} ms, {before / ms:.0f} times as fast"
    yield f"and autoregressive decoding to {plain['round_ms']:.1f} ms"
    faster = captured["mean_acceptance_length"] * plain["round_ms"] / ms
    tokens = f"{captured['mean_acceptance_length']:.2f} tokens a round"
    yield f"With {tokens}, `inplace` was then {faster:.2f} times as fast"
    yield f"drafting takes {captured['draft_ms']:.1f} ms of the round"
    yield f"drafts of mean acceptance length {captured['mean_acceptance_length']:.0f}, all texts"
    rounds = f"{grouped('equal'):.0%} of the rounds at W = 128 with equal prompts"
    yield f"groups of eight are {rounds} and {grouped('mixed'):.0%} with prompts of 10 to 59"


def claims_of_cost() -> Iterator[str]:
    times = bench()["round_ms"]
    ours, plain = times["inplace", 16], times["autoregressive", 16]
    yield f"a round takes {ours:.1f} ms and a step {plain:.1f} ms, {ours / plain:.1f} times less"
    yield f"So `inplace` was ahead, by {ratios('inplace')[-1]:.2f};"
    compiled, drafting = (ratios(name)[0] for name in ("autoregressive:compile=true", "inplace"))
    yield f"{compiled:.1f} times as fast with it, and `inplace` without it {drafting:.1f} times"
    off = 100 * read("simulated-held-out")["deviation"].abs()
    yield f"Each of {len(off)} recorded runs was simulated"
    yield f"off by {off.median():.1f} % in the median and by {off.max():.0f} % at most"
    names = ("inplace", "autoregressive", "eqspec")
    ours, plain, realigned = (latency(0.7, name) for name in names)
    yield f"99 % of the requests within {ours:.1f} s, autoregressive decoding within {plain:.1f} s"
    yield f"and EQSPEC within {realigned:.1f} s"
    plain, ours = latency(0.3, "autoregressive"), latency(0.3, "inplace")
    yield f"a little ahead of `inplace`, {plain:.2f} s and {ours:.2f} s"


def claims_of_readme() -> Iterator[str]:
    tried, exact = families()
    yield f"transformers' {tried} families of causal LMs {exact} are exact as they come"


RESULTS = ROOT / "docs" / "results.md"
CLAIMS: list[tuple[Path, Callable[[], Iterator[str]]]] = [
    (RESULTS, claims_of_results),
    (RESULTS, claims_of_speed),
    (RESULTS, claims_of_drafts),
    (RESULTS, claims_of_heads),
    (RESULTS, claims_of_memory),
    (RESULTS, claims_of_lanes),
    (RESULTS, claims_of_laws),
    (ROOT / "notebooks" / "12_heads.ipynb", claims_of_the_notebook_on_heads),
    (ROOT / "docs" / "compare.md", claims_of_compare),
    (ROOT / "docs" / "cost.md", claims_of_cost),
    (ROOT / "README.md", claims_of_readme),
]


@pytest.mark.parametrize(("path", "claims"), CLAIMS, ids=[each.__name__ for _, each in CLAIMS])
def test_numbers_are_those_of_the_data(path: Path, claims: Callable[[], Iterator[str]]) -> None:
    page = " ".join(path.read_text(encoding="utf-8").split())
    said = [re.sub(r"(\d)%", r"\1 %", words) for words in claims()]
    assert [words for words in said if words not in page] == []


def test_speeds_are_of_equal_texts() -> None:
    for name in ("bench", "openvino", "heads", "heads-equal", "trees-speed", "auto", "gpu-h200"):
        assert (read(name)["exact_match"] == 1).all(), name
    for name in ("memory", "chat"):
        assert read(name)["same_text"].all(), name


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: path.name)
def test_tables_are_those_of_the_data(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert tables.written(page) == page, "run python figures/make/tables.py"


def test_every_table_is_on_a_page() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in tables.PAGES)
    assert {found[2] for found in tables.BLOCK.finditer(pages)} == set(tables.TABLES)
