"""Draft heads of the embedded target: train them, and what their parts are worth.

`python figures/make/heads.py --train FOLDER` trains the heads that come with specviz, for hours, in
FOLDER/weights/heads, and `--train-equal FOLDER` three of them for two minutes each. Without these
options, heads are trained for equally much CPU time on the same windows and compared: Clover with
and without its parts, EAGLE-3 with and without chains, and three heads by training tokens.
Trainings go on where they were interrupted, in runs/heads.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from corpus import SHARES, continuations, library_of, mix_windows
from measure import (
    DATA,
    RUNS,
    Kept,
    Measured,
    command,
    draw_lines,
    interleaved,
    measured_on,
)
from pair import circumstances
from scipy.stats import bootstrap
from tables import markdown

import specviz as sv
from specviz.engine.heads.files import fingerprint
from specviz.engine.heads.settings import LAST
from specviz.record.schema import Array
from specviz.util.files import make_folder, write
from specviz.zoo.heads.export import export_head
from specviz.zoo.heads.features import StoredFeatures, keep_features
from specviz.zoo.heads.loss import head_loss
from specviz.zoo.heads.measure import Text, count_hits, greedy_texts, measure_head
from specviz.zoo.heads.training import (
    RATES,
    UNROLL,
    HeadPlan,
    chain_steps,
    frozen,
    head_batches,
    job_of,
    kept_layers,
    new_head,
    train_from,
    train_head,
)
from specviz.zoo.training import learning_rate_factor, optimisers_for, update

LENGTH = 512  # tokens in a window
K = 4  # drafts a round
DEPTH = 8  # of the chains in which a head is measured, where it has no limit
# Steps of 2048 tokens: twenty to sixty minutes a head on one CPU core.
SHIPPED = {"medusa": 1500, "clover": 2400, "eagle3": 3000, "mtp": 2400, "dflash": 2400}
# Greedy documents that the target writes for them.
DOCUMENTS = {"medusa": 4096, "clover": 4096, "eagle3": 4096, "mtp": 2048, "dflash": 2048}
# Settings of shipped heads that differ from their kinds' own. The mask is an id that no text has.
CHANGES: dict[str, dict[str, Any]] = {
    "dflash": {
        "layers": (1, 6, 10, LAST),
        "num_layers": 3,
        "intermediate_size": 144,
        "heads": 6,
        "mask_token_id": 1344,
    }
}
EQUAL = {"eagle3": 228, "clover": 308, "medusa": 410}  # two minutes of one core


def training_windows(pair: sv.Pair, count: int, work: Path) -> Array:
    """Return the windows (n, LENGTH) of the mix: texts of the target and of the corpus.

    count: greedy documents of the target; sampled ones are half as many.
    """
    library, blocks = library_of(pair)
    sources = {
        "greedy": continuations(pair, blocks, count, work),
        "sampled": continuations(pair, blocks, max(count // 2, 1), work, sampled=True),
        "corpus": library,
    }
    return mix_windows(sources, LENGTH)[0]


def train_heads(steps: Mapping[str, int], documents: Mapping[str, int], out: Path) -> Path:
    """Train heads for the embedded target in `out`, or go on. Return the folder of their weights.

    Args:
        steps: of each kind.
        documents: greedy ones that the target writes, of each kind.
    """
    work = make_folder(out / "checkpoints")
    pair = sv.load_pair(device="cpu", dtype="float32")
    read = {count: training_windows(pair, count, work) for count in {*documents.values()}}
    layers = (layer for changes in CHANGES.values() for layer in changes["layers"])
    texts = greedy_texts(pair, sv.load_prompts(), kept_layers(pair.target, tuple(layers)))
    weights = out / "weights" / "heads"
    rows, unrolls = [], []
    for kind, number in steps.items():
        given = {"plan": HeadPlan(number), "texts": texts, **CHANGES.get(kind, {})}
        windows = read[documents[kind]]
        found = train_head(kind, pair.target, windows, work, **given)
        head, last = found.head, found.history[-1]
        head.training_s = sum(entry["seconds"] for entry in found.history)
        export_head(head, weights / kind)
        figures = measure_head(head, texts)  # of the stored, rounded weights
        parameters = sum(parameter.numel() for parameter in head.parameters())
        row = {
            "head": kind,
            "parameters": f"{parameters / 1e3:.0f}k",
            "MB": f"{2 * parameters / 1e6:.2f}",
            "windows": f"{windows.size / 1e6:.2f}M",
            "steps": last["step"],
            "tokens": f"{last['tokens'] / 1e6:.2f}M",
            "minutes": f"{head.training_s / 60:.0f}",
            "loss": f"{last['loss']:.2f}",
            "length": f"{figures['length']:.3f}",
        }
        for top, step in product(("top1", "top5"), range(1, K + 1)):
            row[f"{top}, step {step}"] = f"{figures[f'{top}_{step}']:.3f}"
        rows.append(row)
        unrolls.append(f"{head.settings.heads or UNROLL} for {kind}")
    text = CARD.format(
        unrolls=", ".join(unrolls), muon=RATES[0], adam=RATES[1], K=K,
        figures=markdown(pd.DataFrame(rows)), **SHARES,
        **circumstances(f"python figures/make/heads.py, {dict(steps)}", "cpu"),
    )  # fmt: skip
    write(weights / "README.md", text.encode())
    return weights


@dataclass(frozen=True)
class Contender:
    """A head and how it is trained.

    Attributes:
        name: of the head in tables.
        kind: of the head.
        changes: settings of the head that differ from the kind's own.
        unroll: steps of a chain in training; None for the kind's own.
        starts: chains in a window, as a share of its tokens.
        share: of the study's budget.
    """

    name: str
    kind: str
    changes: dict[str, Any] = field(default_factory=dict)
    unroll: int | None = None
    starts: float = 0.25
    share: float = 1.0

    @property
    def label(self) -> str:
        """The name of its checkpoint."""
        return self.name if self.share == 1 else f"{self.name}-{self.share:g}"

    def plan(self, steps: int) -> HeadPlan:
        """Return the plan of a training of so many steps, a fifth of which warm up at most."""
        warmup = min(max(round(0.2 * steps), 1), HeadPlan.warmup)
        return HeadPlan(steps, unroll=self.unroll, starts=self.starts, warmup=warmup)


CLOVER = Contender("clover", "clover")
CONTENDERS = (
    CLOVER,
    replace(CLOVER, name="clover-block", changes={"gate": "none"}),
    replace(CLOVER, name="clover-gate", changes={"block": False}),
    replace(CLOVER, name="clover-neither", changes={"block": False, "gate": "none"}),
    Contender("eagle3", "eagle3"),
    # From every entry, so that a step has about as many predictions as one with chains.
    Contender("eagle3-alone", "eagle3", unroll=1, starts=1.0),
    *(Contender("eagle3", "eagle3", share=share) for share in (0.25, 0.5)),
    *(Contender("clover", "clover", share=share) for share in (0.25, 0.5)),
    *(Contender("medusa", "medusa", share=share) for share in (0.25, 0.5, 1.0)),
    replace(CLOVER, name="clover-silu", changes={"gate": "silu"}),
)
# The shares of a step, of counts over counts: see `heads`.
SHARES_OF = (
    ("top1", "top1", "positions"),
    ("top5", "top5", "positions"),
    ("conditional", "accepted", "reached"),
)
Ratio = Callable[..., dict[str, float]]
# A head, and the one that it is compared with.
PAIRS = (
    ("clover-block", "clover-neither"),
    ("clover-gate", "clover-neither"),
    ("clover", "clover-neither"),
    ("clover", "clover-block"),
    ("clover", "clover-gate"),
    ("clover", "clover-silu"),
    ("clover-silu", "clover-block"),
    ("eagle3", "eagle3-alone"),
)


def heads(
    budget_s: float, documents: int, contenders: Sequence[Contender], samples: int
) -> Measured:
    """Return three tables: of trainings, of the steps of chains, and of differences of two heads.

    Shares: top1 and top5 of positions where the next token is the head's first choice, or among its
    first five, given the true tokens before it; conditional, of drafts that are accepted if all
    before them are. Intervals are over the prompts; those of differences are of prompts drawn for
    both heads.

    Args:
        budget_s: CPU seconds of a training. How many steps fit is measured beforehand, on all heads
            side by side: trainings one after another meet a machine that is busy now and idle then.
        documents: greedy ones that the target writes.
    """
    pair = sv.load_pair(device="cpu", dtype="float32")
    work = make_folder(RUNS / "heads")
    windows = training_windows(pair, documents, work)
    layers = kept_layers(pair.target)
    features = keep_features(pair.target, windows, layers, work)
    texts = greedy_texts(pair, sv.load_prompts(), layers)
    settings = {"budget_s": budget_s, "prompts": len(texts), "window_tokens": int(windows.size)}
    about = measured_on(pair, **settings, num_draft_tokens=K, samples=samples, seed=0)
    read = hashlib.sha256(windows.tobytes()).hexdigest()
    kept = Kept("heads", about | {"weights": fingerprint(pair.target), "windows": read})
    names = list({each.name: each for each in contenders}.values())
    step_s = kept.get("steps", lambda: seconds_of_steps(names, pair, features))
    found = []
    for each in contenders:
        steps = max(round(budget_s * each.share / step_s[each.name]), 1)
        count = partial(trained, each, steps, pair, features, texts, work)
        counted = kept.get(asdict(each), count)
        found.append(counted | {"step_ms": 1e3 * step_s[each.name]})
    tables = tables_of(found, samples)
    kept.done()
    return tables, about


def seconds_of_steps(
    contenders: Sequence[Contender], pair: sv.Pair, features: StoredFeatures
) -> dict[str, float]:
    """Return the CPU seconds of a step of each contender: medians of nine steps taken in turn."""
    steps = {each.name: partial(next, steps_of(each, pair, features)) for each in contenders}
    with frozen(pair.target):
        seconds = interleaved(steps, 9, clock=time.process_time)
    return {name: median(taken) for name, taken in seconds.items()}


def steps_of(contender: Contender, pair: sv.Pair, features: StoredFeatures) -> Iterator[None]:
    """Make a step of a training each time."""
    plan = contender.plan(11)
    head = new_head(contender.kind, pair.target, plan, **contender.changes)
    optimisers = optimisers_for(head, RATES)
    for number, batch, _ in head_batches(features, head, plan, 0):
        loss = head_loss(head, pair.target, chain_steps(head, plan), batch)
        yield update(head, optimisers, loss, learning_rate_factor(number, plan.steps), RATES)


def trained(
    contender: Contender,
    steps: int,
    pair: sv.Pair,
    features: StoredFeatures,
    texts: Sequence[Text],
    work: Path,
) -> dict[str, Any]:
    """Train a contender, from its checkpoint if there is one, and count how often it is right."""
    plan = contender.plan(steps)
    head = new_head(contender.kind, pair.target, plan, **contender.changes)
    job = job_of(f"{contender.label}-{steps}", work, pair.target, plan)
    history = train_from(features, job, head, pair.target, plan).history
    hits = count_hits(head, texts, head.settings.heads or DEPTH, K)
    settings = head.settings
    columns = {"head": contender.name, "kind": contender.kind, "block": settings.block}
    columns |= {"gate": settings.gate, "depth": settings.depth, "unroll": contender.unroll}
    columns |= {"starts": contender.starts, "share": contender.share}
    return {
        "columns": columns,
        "parameters": sum(parameter.numel() for parameter in head.parameters()),
        "last": history[-1],
        "cpu_s": sum(part["cpu_seconds"] for part in history),
        "hits": {name: np.asarray(counts).tolist() for name, counts in asdict(hits).items()},
    }


def ratio(name: str, *columns: Any, samples: int, points: bool = False) -> dict[str, float]:
    """Return a / b of sums over prompts under the name, with its bootstrap interval over prompts.

    With `points` it is 100 (a / b - c / d). Prompts in which nothing is counted are left out. NaN
    stands for what too few are left for.
    """
    counted = np.logical_and.reduce([np.asarray(below) > 0 for below in columns[1::2]])
    kept = [np.asarray(each, float)[counted] for each in columns]

    def of(*parts: Array, axis: int = -1) -> Array:
        sums = [part.sum(axis) for part in parts]
        return 100 * (sums[0] / sums[1] - sums[2] / sums[3]) if points else sums[0] / sums[1]

    found = dict.fromkeys((name, f"{name}_low", f"{name}_high"), float("nan"))
    if counted.any():
        found[name] = float(of(*kept))
    if counted.sum() > 1:
        interval = bootstrap(
            kept, of, paired=True, vectorized=True, n_resamples=samples, method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval  # fmt: skip
        found |= {f"{name}_low": float(interval.low), f"{name}_high": float(interval.high)}
    return found


def tables_of(found: Sequence[Mapping[str, Any]], samples: int) -> dict[str, pd.DataFrame]:
    """Return all tables: an entry for each training, for each step of a chain, and of PAIRS."""
    of = partial(ratio, samples=samples)
    trainings, steps = [], []
    for each in found:
        last, hits = each["last"], each["hits"]
        entry = {**each["columns"], "parameters": each["parameters"], "steps": last["step"]}
        entry |= {"tokens": last["tokens"], "step_ms": each["step_ms"], "cpu_s": each["cpu_s"]}
        entry |= {"loss": last["loss"]} | of("length", hits["tokens"], hits["rounds"])
        trainings.append(entry)
        by_step = {name: np.array(hits[name]).T for _, *names in SHARES_OF for name in names}
        for step in range(len(by_step["positions"])):
            at = {"head": entry["head"], "share": entry["share"], "step": step + 1}
            for name, above, below in SHARES_OF:
                at |= of(name, by_step[above][step], by_step[below][step])
            steps.append(at)
    training = pd.DataFrame(trainings).astype({"unroll": "Int64"})
    gains = pd.DataFrame(gain_entries(found, of))
    return {"training": training, "steps": pd.DataFrame(steps), "gains": gains}


def gain_entries(found: Sequence[Mapping[str, Any]], of: Ratio) -> Iterator[dict[str, Any]]:
    """Yield the differences in percentage points of PAIRS, step by step."""
    hits = {
        each["columns"]["head"]: {name: np.array(counts).T for name, counts in each["hits"].items()}
        for each in found
        if each["columns"]["share"] == 1
    }
    for head, over in PAIRS:
        if head not in hits or over not in hits:
            continue
        both = hits[head], hits[over]
        for step in range(min(len(each["positions"]) for each in both)):
            entry: dict[str, Any] = {"head": head, "over": over, "step": step + 1}
            for name, *counted in SHARES_OF:
                columns = [each[column][step] for each in both for column in counted]
                entry |= of(name, *columns, points=True)
            yield entry


BLOCKS = {
    "clover": "block and gate: Clover",
    "clover-gate": "gate alone",
    "clover-block": "block alone",
    "clover-neither": "neither: Medusa",
}
UNROLLED = {
    "eagle3": "EAGLE-3",
    "eagle3-alone": "EAGLE-3 without chains",
}


def draw() -> None:
    """Draw heads-blocks.png, heads-steps.png and heads-tokens.png from the tables."""
    trainings, steps = (pd.read_csv(DATA / f"heads-{name}.csv") for name in ("training", "steps"))
    whole = steps[steps["share"] == 1]

    def by_step(names: Mapping[str, str], column: str) -> dict[str, Any]:
        of_head = {name: whole[whole["head"] == head] for head, name in names.items()}
        return {name: (list(each["step"]), list(each[column])) for name, each in of_head.items()}

    by_tokens = {}
    for kind in ("eagle3", "clover", "medusa"):
        of_kind = trainings[trainings["head"] == kind].sort_values("tokens")
        by_tokens[kind] = (list(of_kind["tokens"] / 1e6), list(of_kind["length"]))
    words = "heads trained for the same CPU time; the tokens before it are given"
    draw_lines(
        "heads-blocks", by_step(BLOCKS, "top5"), words=words, x="head", y="share of positions",
        title="The next token is among a head's first five",
    )  # fmt: skip
    draw_lines(
        "heads-steps", by_step(UNROLLED, "top1"), words=words, x="step", y="share of positions",
        title="The next token is a head's first choice, by step of its own chain",
        dashed=["EAGLE-3 without chains"],
    )  # fmt: skip
    draw_lines(
        "heads-tokens", by_tokens, x="training tokens, millions", y="new tokens a round",
        title="Mean acceptance length by training tokens",
        words="each point is a training of its own, at whose end the rates are 0; K = 4",
    )  # fmt: skip


CARD = """# Draft heads of the embedded target

Small modules that draft for the embedded target from its own hidden states. They use its embedding
and its LM head, and are of no use with another model: `target` in `config.json` is the fingerprint
of the one that they belong to. mtp is a layer of transformers' `MtpModel`, which drafts all tokens
one after the other. dflash is transformers' `MuseGlimmerAssistantModel`, in a folder that its
`from_pretrained` loads; it drafts six tokens in one forward.

- **Data**: windows of 512 tokens, {greedy:.0%} greedy continuations by the target of training
  prompts, {sampled:.0%} sampled at a temperature of 0.8, {corpus:.0%} of the corpus (sources of the
  Python {python} standard library without the held-out tenth of the files). The column `windows`
  has how many tokens they hold, and `tokens` how many a head has read of them.
- **Licence**: the corpus is under the Python Software Foundation License 2.0. These weights are
  offered under the same terms.
- **Command**: `{command}`, {date}, on {device};
  torch {torch}, transformers {transformers}.
- **Loss**: cross-entropy against the target's p, at a quarter of the entries of each window, over
  chains of steps, {unrolls}. Each step has .8 of the weight of the one before. Muon at {muon} for
  matrices and AdamW at {adam} for the rest, in float32, with warm-up and linear decay.
- **Stored** as float16 safetensors, without the target's weights.

Measured on the stored weights, in float32, on the target's greedy texts after the 32 bundled
prompts (128 new tokens each, from held-out files), {K} drafts a round. The length is new tokens a
round, bonus included. Top-1 and top-5 are shares of positions, given the true tokens before, of
which dflash sees none behind the pending one. Minutes are wall time of training alone, on a machine
that did other work as well. Heads of different numbers of tokens say little about their kinds.

{figures}
"""

if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train_heads(SHIPPED, DOCUMENTS, Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--train-equal"]:
        train_heads(EQUAL, dict.fromkeys(EQUAL, 1600), Path(sys.argv[2]))
    else:
        whole = {"budget_s": 120.0, "documents": 1600, "contenders": CONTENDERS, "samples": 1000}
        small = {"budget_s": 1.0, "documents": 24, "contenders": CONTENDERS[:2], "samples": 20}
        command(heads, {"heads": whole}, small)
        draw()
