"""How acceptance length grows with the training and the size of the draft: the ladder.

Every draft of the ladder reads the same windows with the embedded target's distributions, in the
same order, and is measured on the target's greedy texts after the bundled prompts, which are held
out. A trunk runs at a constant rate, so that all marks of a size share its steps. At a mark a
branch leaves it, in which the rates fall to 0: a draft at a constant rate would look worse than one
that was trained for so many tokens. Trainings go on where they were interrupted, in runs/laws.
Run it with OMP_NUM_THREADS=1.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from corpus import continuations, library_of, mix_windows
from measure import DATA, RUNS, Kept, Measured, command, draw_lines, measured_on
from pair import build_model, distillation_loss
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaForCausalLM, PreTrainedModel

import specviz as sv
from specviz.costs import laws as fitting
from specviz.costs.breakeven import round_seconds
from specviz.costs.ceilings import CPU_TABLE, Ceilings
from specviz.costs.laws import MIN_POINTS, fit_saturating, interval
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import ModelShape, named_pair
from specviz.engine.heads.files import fingerprint
from specviz.record.schema import Array
from specviz.util.files import make_folder, replacing
from specviz.zoo.heads.measure import count_rounds
from specviz.zoo.heads.training import frozen
from specviz.zoo.training import TrainingJob, optimisers_for, train_on

ROWS, LENGTH = 2, 512  # windows of a step: so few, that the lowest marks have some steps
STEP_TOKENS = ROWS * LENGTH
COOLDOWN = 0.2  # of a mark's steps: how many steps the rates take to 0
WARMUP = 10  # steps; the lowest mark has 16
SEED = 1
SIZES = ("1x64", "1x128", "2x128", "4x128", "1x256", "2x256")  # layers x width
MARKS = (16_384, 32_768, 65_536, 131_072, 262_144, 524_288)  # tokens at the constant rate
# K of the rounds. A small K bounds the length, and what grows towards a bound looks saturated.
SMALL_K, LARGE_K = 4, 16
HEAD_SIZE = 64  # as the shipped draft
SHIPPED_TOKENS = 7_400_000  # that the shipped draft was trained on, by its card
NEW_TOKENS = 128
# The batch law: tokens of a row that are attended to, by device.
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SLOTS = {"cpu": 256, "assumed": 1024}
# No device of this name was measured: 4 TB/s, 600 TFLOP/s, and a microsecond for each kernel of a
# replayed graph.
ASSUMED = Ceilings(
    bandwidth=((1e6, 4e12),), matmul={"bfloat16": ((1, 6e14),)}, launch_s=5e-6, replay_s=1e-6,
    device="assumed",
)  # fmt: skip
# What a law is over, and what is the same in all its points.
AXES = {
    "tokens": ("tokens", "size"),
    "parameters": ("parameters", "mark"),
    "layer_parameters": ("layer_parameters", "mark"),
}
Counted = Mapping[str, Any]  # what was counted of a draft


def laws(sizes: Sequence[str], marks: Sequence[int], documents: int, samples: int) -> Measured:
    """Train the ladder, and return its tables.

    "drafts" has an entry for each draft, with the lengths at K = 4 and 16; "lengths" one for each
    draft and K, with the survival of K drafts in a row; "prompts" one for each draft and prompt;
    "fits" one for each law; "batch" the fastest K for each device, draft and B. The shipped draft,
    which was trained longer on another mix, is in "lengths" and "batch" alone.

    documents: greedy ones that the target writes for the drafts.
    """
    pair = sv.load_pair(device="cpu", dtype="float32")
    work = make_folder(RUNS / "laws")
    library, blocks = library_of(pair)
    written = continuations(pair, blocks, documents, work)
    shares = {"greedy": 0.5, "corpus": 0.5}
    windows, _ = mix_windows({"greedy": written, "corpus": library}, LENGTH, shares=shares)
    run = {"strategy": "autoregressive", "max_new_tokens": NEW_TOKENS, "batch_size": 32}
    result = sv.generate(pair, sv.load_prompts(), **run)
    texts = list(zip(map(list, result.prompts), result.tokens, strict=True))
    settings = {"prompts": len(texts), "max_new_tokens": NEW_TOKENS, "cooldown": COOLDOWN}
    settings |= {"num_draft_tokens": [SMALL_K, LARGE_K], "window_tokens": int(windows.size)}
    about = measured_on(pair, **settings, samples=samples, seed=0)
    read = hashlib.sha256(windows.tobytes()).hexdigest()
    kept = Kept("laws", about | {"weights": fingerprint(pair.target), "windows": read})

    def climb(rung: Rung, below: Rung | None) -> dict[str, Any]:
        draft, history = train_rung(rung, below, pair.target, windows, work)
        return counted(draft, rung.size, rung.mark, texts) | {"history": history}

    found = []
    with frozen(pair.target):
        for below, mark in zip((None, *marks), marks, strict=False):
            for size in sizes:
                lower = None if below is None else Rung(size, below)
                found.append(kept.get((size, mark), partial(climb, Rung(size, mark), lower)))
    tables = tables_of(found, counted(pair.draft, "shipped", SHIPPED_TOKENS, texts), samples)
    at_k = tables["lengths"].query("size == 'shipped'").set_index("num_draft_tokens")["length"]
    about["shipped"] = {"tokens": SHIPPED_TOKENS}
    about["shipped"] |= {f"length_k{k}": round(at_k[k], 4) for k in (SMALL_K, LARGE_K)}
    kept.done()
    return tables, about


@dataclass(frozen=True)
class Rung:
    """A draft of the ladder: its size, layers x width, and its tokens at the constant rate."""

    size: str
    mark: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.size}-{self.mark}"

    @property
    def mark_steps(self) -> int:
        """Steps at the constant rate."""
        return self.mark // STEP_TOKENS

    @property
    def steps(self) -> int:
        """Steps in all, those of the cooldown included."""
        return self.mark_steps + max(round(COOLDOWN * self.mark_steps), 1)


def form_of(size: str) -> dict[str, int]:
    """Return the arguments of `build_model`, in the proportions of the shipped draft."""
    layers, width = map(int, size.split("x"))
    heads = max(width // HEAD_SIZE, 1)
    kv_heads = heads // 2 if heads % 2 == 0 else heads
    form = {"layers": layers, "hidden_size": width, "heads": heads, "kv_heads": kv_heads}
    return form | {"mlp": width * 11 // 4}


def batches_of(windows: Array, steps: int, start: int) -> Iterator[tuple[int, Tensor, int]]:
    """Yield (step, windows (ROWS, LENGTH), tokens in them) from step `start` to `steps`.

    The first epoch takes the windows as they come. Each further one has its own order.
    """
    for step in range(start, steps):
        epoch, index = divmod(step, len(windows) // ROWS)
        order = np.arange(len(windows))
        if epoch:
            order = np.random.default_rng([SEED, epoch]).permutation(len(windows))
        tokens = windows[order[index * ROWS : (index + 1) * ROWS]].astype(np.int64)
        yield step, torch.from_numpy(tokens), tokens.size


def train_rung(
    rung: Rung, below: Rung | None, target: PreTrainedModel, windows: Array, folder: Path
) -> tuple[LlamaForCausalLM, list[dict[str, float]]]:
    """Train the draft of a rung, from the checkpoints of the rung below and of an interruption.

    below: of the same size, with the next smaller mark, which is trained already.
    """
    trunk, cooled = (folder / f"{rung.name}{end}.safetensors" for end in ("", "-cooled"))
    if below is not None and not trunk.exists():
        branch(folder / f"{below.name}.safetensors", trunk, rung.mark_steps)
    draft = build_model(**form_of(rung.size), seed=SEED)
    loss = partial(distillation_loss, draft, target)

    def train(path: Path, steps: int, schedule: Callable[..., float]) -> list[dict[str, float]]:
        job = TrainingJob(
            path.stem, folder, steps, target.device, checkpoint_every=64, warmup=WARMUP,
            optimisers=float32_optimisers, schedule=schedule,
        )  # fmt: skip
        return train_on(job, draft, loss, partial(batches_of, windows, steps))

    train(trunk, rung.mark_steps, constant)
    if not cooled.exists():
        branch(trunk, cooled, rung.steps)
    history = train(cooled, rung.steps, partial(falling, rung.mark_steps))
    return draft.eval(), history


def branch(source: Path, path: Path, steps: int) -> None:
    """Copy a checkpoint, for a training of another number of steps that begins there."""
    with safe_open(source, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata()
    with replacing(path, alone=True) as part:
        save_file(tensors, part, metadata={**header, "steps": str(steps)})


def constant(step: int, steps: int, warmup: int) -> float:
    """Return the factor of the rates in a trunk: linear warm-up, then 1."""
    return min((step + 1) / warmup, 1.0)


def falling(first: int, step: int, steps: int, warmup: int) -> float:
    """Return the factor of the rates in a branch, which falls from 1 before step `first` to 0."""
    return constant(step, steps, warmup) * (steps - step) / (steps - first + 1)


class Float32Muon(torch.optim.Muon):
    """`torch.optim.Muon` whose Newton-Schulz iteration keeps the dtype of the gradient.

    On a CPU that has no bfloat16 instructions, torch's own takes most of a step.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters once. There is no closure to call."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        buffer = state["momentum_buffer"]
        buffer.lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(buffer, group["momentum"])  # Nesterov
        rows, columns = parameter.shape
        rate = group["lr"] * max(1.0, rows / columns) ** 0.5
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(orthogonalise(direction, group), alpha=-rate)


def orthogonalise(matrix: Tensor, group: Mapping[str, Any]) -> Tensor:
    """Return a matrix with the singular vectors of `matrix` and singular values near 1.

    It is the quintic Newton-Schulz iteration of Muon, with the constants of its group.
    """
    a, b, c = group["ns_coefficients"]
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    found = wide / wide.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = found @ found.T
        change = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        found = torch.addmm(found, change, found, beta=a)
    return found if wide is matrix else found.T


def float32_optimisers(model: nn.Module, rates: tuple[float, float]) -> list[torch.optim.Optimizer]:
    """Return what `optimisers_for` returns, with Muon in float32."""
    muon, others = optimisers_for(model, rates)
    return [Float32Muon(muon.param_groups[0]["params"], lr=rates[0]), others]


@torch.inference_mode()
def count_accepted(draft: PreTrainedModel, prompt: Sequence[int], output: Sequence[int]) -> Array:
    """Return how many drafts in a row are right before each token of `output` (T,), int64.

    As long as a greedy draft is right, it is the text itself, so one forward over the text tells.
    """
    text = torch.tensor([[*prompt, *output]], device=draft.device)
    logits = draft(text[:, :-1], use_cache=False).logits[0, len(prompt) - 1 :]
    right = (logits.float().argmax(-1) == text[0, len(prompt) :]).cpu().numpy()
    wrong = np.append(np.flatnonzero(~right), len(right))
    places = np.arange(len(right))
    return wrong[np.searchsorted(wrong, places)] - places


def counted(
    draft: PreTrainedModel, size: str, mark: int, texts: Sequence[tuple[list[int], list[int]]]
) -> dict[str, Any]:
    """Return what a draft is, and its right drafts on (prompt, output) of each text."""
    layers = draft.base_model.layers
    return {
        "size": size,
        "layers": len(layers),
        "width": draft.config.hidden_size,
        "parameters": draft.num_parameters(),
        "layer_parameters": sum(each.numel() for each in layers.parameters()),
        "mark": mark,
        "accepted": [count_accepted(draft, *text).tolist() for text in texts],
    }


def rounds_of(accepted: Sequence[Sequence[int]], k: int) -> Array:
    """Return the rounds (R,) that each text takes with K drafts a round."""
    return np.array([count_rounds([min(each, k) for each in text]) for text in accepted])


def survival(accepted: Sequence[Sequence[int]], depth: int) -> Array:
    """Return the share of positions at which the first 1..depth drafts are all accepted (depth,).

    A position counts only while its text has that many tokens left; NaN where none has.
    """
    runs = np.concatenate([np.asarray(text) for text in accepted])
    left = np.concatenate([len(text) - np.arange(len(text)) for text in accepted])
    with np.errstate(invalid="ignore"):
        return np.array([(runs > k).sum() / np.float64((left > k).sum()) for k in range(depth)])


def tables_of(found: Sequence[Counted], shipped: Counted, samples: int) -> dict[str, pd.DataFrame]:
    """Return all tables from what was counted of each draft."""
    found = sorted(found, key=lambda each: (each["mark"], each["parameters"]))
    of_prompts, lengths, drafts = [], [], []
    for each in (*found, shipped):
        tokens = np.array(list(map(len, each["accepted"])))
        rounds = {k: rounds_of(each["accepted"], k) for k in range(1, LARGE_K + 1)}
        right = survival(each["accepted"], LARGE_K)
        for k in rounds:
            entry = {name: each[name] for name in ("size", "layers", "width", "mark")}
            entry |= {"num_draft_tokens": k, "length": tokens.sum() / rounds[k].sum()}
            lengths.append(entry | {"survival": right[k - 1]})
        columns = {"size": each["size"], "mark": each["mark"], "prompt": range(len(tokens))}
        columns["new_tokens"] = tokens
        columns |= {f"rounds_k{k}": rounds[k] for k in (SMALL_K, LARGE_K)}
        of_prompts.append(pd.DataFrame(columns))
    prompts = pd.concat(of_prompts[:-1], ignore_index=True)
    for each in found:
        last = each["history"][-1]
        entry = {name: each[name] for name in each if name not in ("accepted", "history")}
        entry |= {"steps": last["step"], "tokens": last["tokens"], "loss": last["loss"]}
        entry["cpu_s"] = sum(part["cpu_seconds"] for part in each["history"])
        for k in (SMALL_K, LARGE_K):
            drawn = resampled(pd.DataFrame([entry]), prompts, k, samples)[:, 0]
            low, high = interval(drawn[1:])
            name = f"length_k{k}"
            entry |= {name: float(drawn[0]), f"{name}_low": low, f"{name}_high": high}
        drafts.append(entry)
    tables = {"drafts": pd.DataFrame(drafts), "lengths": pd.DataFrame(lengths), "prompts": prompts}
    tables["fits"] = pd.DataFrame(fit_entries(tables["drafts"], prompts, samples))
    tables["batch"] = pd.DataFrame(batch_entries(tables["lengths"]))
    return tables


def resampled(points: pd.DataFrame, prompts: pd.DataFrame, k: int, samples: int) -> Array:
    """Return lengths (1 + N, G) of G drafts, measured and in each sample of the prompts."""
    by_draft = prompts.set_index(["size", "mark"])
    of_drafts = [by_draft.loc[key] for key in zip(points["size"], points["mark"], strict=True)]
    tokens = np.stack([each["new_tokens"] for each in of_drafts])
    return fitting.resampled_lengths(
        tokens, np.stack([each[f"rounds_k{k}"] for each in of_drafts]), samples, 0
    )


def fit_entries(
    drafts: pd.DataFrame, prompts: pd.DataFrame, samples: int
) -> Iterator[dict[str, Any]]:
    """Yield one entry for each law: over tokens at each size, over parameters at each mark."""
    for over, (column, same) in AXES.items():
        for at, points in drafts.groupby(same, sort=False):
            points = points.sort_values(column)
            if points[column].nunique() < MIN_POINTS["log"]:
                continue
            for k in (SMALL_K, LARGE_K):
                entry: dict[str, Any] = {"over": over, "at": at, "num_draft_tokens": k}
                lengths = resampled(points, prompts, k, samples)
                yield entry | fit_points(points[column].to_numpy(float), lengths)


def fit_points(x: Array, lengths: Array) -> dict[str, float]:
    """Return how well laws fit, and what they say of the last point without it.

    length = a + b ln x, with per_doubling and its interval over prompts; length = a - b x**-c. NaN
    stands where there are too few points: a law is judged with more than it needs.

    Args:
        x: (G,), in rising order.
        lengths: (1 + N, G), measured and resampled.
    """
    measured, points, nan = lengths[0], len(np.unique(x)), float("nan")
    line = fitting.fit_log(x, measured)
    low, high = interval(np.polyfit(np.log2(x), lengths[1:].T, 1)[0])
    found = {"points": len(x), "a": line.a, "per_doubling": line.per_doubling}
    found |= {"per_doubling_low": low, "per_doubling_high": high}
    found["log_r2"] = fitting.r_squared(line, x, measured) if points > MIN_POINTS["log"] else nan
    found |= {"saturating_a": nan, "saturating_c": nan, "saturating_r2": nan}
    if points >= MIN_POINTS["saturating"]:
        curve = fit_saturating(x, measured)
        found |= {"saturating_a": curve.a, "saturating_c": curve.c}
        if points > MIN_POINTS["saturating"]:
            found["saturating_r2"] = fitting.r_squared(curve, x, measured)
    found |= {"held_x": float(x[-1]), "held_length": float(measured[-1])}
    for name, number in MIN_POINTS.items():
        values = [nan, nan, nan]
        if len(np.unique(x[:-1])) >= number:
            errors = predicted(name, x, lengths) - lengths[:, -1]
            values = [float(errors[0]), *interval(errors[1:])]
        columns = (f"{name}_error", f"{name}_error_low", f"{name}_error_high")
        found |= dict(zip(columns, values, strict=True))
    return found


def predicted(name: str, x: Array, lengths: Array) -> Array:
    """Return what the law says of the last point, fitted to those before it (1 + N,)."""
    if name == "log":
        slope, offset = np.polyfit(np.log(x[:-1]), lengths[:, :-1].T, 1)
        return offset + slope * np.log(x[-1])
    curves = [fit_saturating(x[:-1], each[:-1]) for each in lengths]
    return np.array([float(curve.at(x[-1])) for curve in curves])


@cache
def costs_of(device: str, layers: int, width: int) -> Roofline:
    """Return the costs of rounds with a draft of this size.

    "cpu" is the embedded target in float32 on the two CPU cores whose ceilings come with specviz;
    "assumed" is Qwen3-8B with Qwen3-0.6B in bfloat16 on ASSUMED, whatever the size.
    """
    if device == "assumed":
        return Roofline(*named_pair("qwen3-8b/0.6b"), ASSUMED, "bfloat16", captured=True)
    path = Path(sv.__file__).parent / "zoo" / "weights" / "target" / "config.json"
    target = ModelShape.from_config(json.loads(path.read_text(encoding="utf-8")))
    draft = ModelShape.from_config(build_model(**form_of(f"{layers}x{width}")).config.to_dict())
    return Roofline(target, draft, Ceilings.load(CPU_TABLE))


def batch_entries(lengths: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the K with most tokens a second for each device, draft and B; 0 where none pays.

    Acceptance does not depend on B: a draft is right or wrong given the tokens before it. What
    changes with B is what a round costs, so the lengths are those of one row.
    """
    names = ["size", "layers", "width", "mark"]
    for (size, layers, width, mark), of_draft in lengths.groupby(names, sort=False):
        by_k = {0: 1.0} | dict(zip(of_draft["num_draft_tokens"], of_draft["length"], strict=True))
        for (device, slots), b in product(SLOTS.items(), BATCH_SIZES):
            costs = costs_of(device, layers, width).phase_seconds
            speeds = {
                k: b * length / round_seconds(costs, b, k, slots) for k, length in by_k.items()
            }
            best = max(speeds, key=lambda k, speeds=speeds: speeds[k])
            entry = {"device": device, "size": size, "mark": mark, "batch_size": b}
            entry |= {"num_draft_tokens": best, "length": by_k[best]}
            yield entry | {"tokens_per_s": speeds[best], "speedup": speeds[best] / speeds[0]}


def draw() -> None:
    """Draw laws-tokens.png, laws-size.png, laws-heads.png and laws-batch.png from the tables."""
    drafts, batch = (pd.read_csv(DATA / f"laws-{name}.csv") for name in ("drafts", "batch"))
    heads = pd.read_csv(DATA / "heads-training.csv").sort_values("tokens")
    kinds = ["eagle3", "clover", "medusa"]
    drafts["thousands"] = (drafts["tokens"] / 1e3).round()
    drafts["millions"] = (drafts["parameters"] / 1e6).round(2)
    by_tokens, by_size, both, best = {}, {}, {}, {}
    for size, points in drafts.groupby("size", sort=False):
        by_tokens[size] = (list(points["thousands"]), list(points["length_k16"] - 1))
        both[f"draft {size}"] = (list(points["thousands"]), list(points["length_k4"] - 1))
    for thousands, points in drafts.sort_values("parameters").groupby("thousands"):
        name = f"{thousands:.0f}k tokens"
        by_size[name] = (list(points["millions"]), list(points["length_k16"] - 1))
    for kind in kinds:
        points = heads[heads["head"] == kind]
        both[kind] = (list((points["tokens"] / 1e3).round()), list(points["length"] - 1))
    for device, points in batch.groupby("device", sort=False):
        alone = points[points["batch_size"] == 1]
        size, mark = alone.loc[alone["tokens_per_s"].idxmax(), ["size", "mark"]]
        of_draft = points[(points["size"] == size) & (points["mark"] == mark)]
        columns = (list(of_draft["batch_size"]), list(of_draft["num_draft_tokens"]))
        best[f"{device}: {size}"] = columns
    drafted = partial(draw_lines, y="accepted drafts a round", log="x")
    drafted(
        "laws-tokens", by_tokens, x="training tokens, thousands",
        title="Accepted drafts by training tokens",
        words="layers x width of the draft; K = 16; a straight line is a log-linear law",
    )  # fmt: skip
    drafted(
        "laws-size", by_size, x="parameters, millions",
        title="Accepted drafts by the size of the draft",
        words="K = 16; a straight line is a log-linear law",
    )  # fmt: skip
    drafted(
        "laws-heads", both, x="training tokens, thousands", dashed=kinds,
        title="Drafts and heads on the same axes",
        words="K = 4; heads are dashed, and were trained on other texts of the same target",
    )  # fmt: skip
    draw_lines(
        "laws-batch", best, x="B", y="K", log="x", title="The best K by batch size",
        words="from costs; acceptance is the same at every B; K = 0 is autoregressive decoding",
    )  # fmt: skip


if __name__ == "__main__":
    whole = {"sizes": SIZES, "marks": MARKS, "documents": 1600, "samples": 1000}
    small = {"sizes": SIZES[:2], "marks": (2048, 4096), "documents": 48, "samples": 20}
    command(laws, {"laws": whole}, small)
    draw()
