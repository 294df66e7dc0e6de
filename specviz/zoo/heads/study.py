"""`specviz study heads`: what the parts of a draft head are worth at equal training time.

Every head is trained for the embedded target on the same windows, for the same CPU time, with rates
that decay to 0. A training leaves a file of what was counted, so that a study that was killed goes
on with the next one. The tables are made from these files alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from tqdm.auto import tqdm

from specviz.engine.heads.fingerprint import fingerprint
from specviz.engine.models.pair import Pair, load_pair
from specviz.prompts import load_prompts
from specviz.studies.machine import device_conditions
from specviz.util.files import make_folder, write
from specviz.util.validate import quoted_path, require_bool, require_int, require_positive
from specviz.zoo.heads.contenders import PARTS, Contender, contenders_of
from specviz.zoo.heads.features import StoredFeatures, keep_features
from specviz.zoo.heads.measure import Text, count_hits, greedy_texts
from specviz.zoo.heads.pipeline import CONTINUATIONS, training_windows
from specviz.zoo.heads.step_cost import measure_steps
from specviz.zoo.heads.study_gains import gain_table
from specviz.zoo.heads.study_tables import step_table, training_table
from specviz.zoo.heads.training import job_of, kept_layers, new_head, train_from
from specviz.zoo.pipeline import training_folder

BUDGET = 240.0  # CPU seconds
K = 4  # drafts a round
STEPS = 8  # of the chains in which a head is measured, where it has no limit
PLAN = "steps.json"


def study_heads(
    out: str | Path,
    *,
    budget: float = BUDGET,
    parts: Sequence[str] = PARTS,
    continuations: int = CONTINUATIONS,
    limit: int | None = None,
    samples: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> tuple[dict[str, pd.DataFrame], dict[str, object]]:
    """Train heads for equally long in `out`, or go on training them, and compare them.

    Texts of the target, its features and checkpoints lie in `out/checkpoints`, as `train_heads`
    keeps them. What was counted of a head lies in `out/trainings`.

    Args:
        out: the folder.
        budget: CPU seconds of a training. How many steps fit is measured once, on all heads side by
            side, and kept in `out/steps.json`.
        parts: of PARTS. "blocks" are Clover with and without its block and its gate; "unrolling"
            are EAGLE-3, without chains in training, and with EAGLE-1's loss; "tokens" are three
            heads at shares of the budget; "gates" are Clover's.
        continuations: as in `train_heads`.
        limit: bundled prompts on which heads are measured; None for all.
        samples: bootstrap samples of the prompts, for the intervals.
        seed: of the samples.
        progress: whether to show progress bars.

    Returns:
        (tables, conditions). The tables are "training", "steps" and "gains", as `training_table`,
        `step_table` and `gain_table` make them.

    Raises:
        ValueError: an argument cannot be used; nothing has run. Or the folder holds a study of
            another budget.
        WriteError: the folder cannot be written, or the disk is full.
    """
    require_positive("budget", budget)
    contenders = contenders_of(parts)
    require_int("continuations", continuations)
    require_int("samples", samples, 2, maximum=10_000)
    require_int("seed", seed, 0)
    require_bool("progress", progress)
    prompts = load_prompts(limit=limit)
    out = training_folder(out)
    work = out / "checkpoints"
    pair = load_pair(device="cpu", dtype="float32")
    windows = training_windows(pair, continuations, work, progress=progress)
    layers = kept_layers(pair.target)
    features = keep_features(pair.target, windows, layers, work, progress=progress)
    texts = greedy_texts(pair, prompts, layers)
    steps = planned_steps(contenders, pair, features, out, budget, progress=progress)
    found = []
    for contender in tqdm(contenders, unit="training", disable=not progress):
        found.append(
            trained(contender, pair, features, texts, out, steps[contender.label], progress)
        )
    given: dict[str, object] = {
        "budget_s": budget,
        "prompts": len(prompts),
        "window_tokens": int(windows.size),
    }
    given |= {"num_draft_tokens": K, "samples": samples, "seed": seed}
    given["command"] = _command(budget, parts, continuations)
    return tables_of(found, samples, seed), _conditions(given)


def tables_of(
    found: Sequence[Mapping[str, Any]], samples: int, seed: int
) -> dict[str, pd.DataFrame]:
    """Return the tables of the study from what was counted of each training."""
    return {
        "training": training_table(found, samples, seed),
        "steps": step_table(found, samples, seed),
        "gains": gain_table(found, samples, seed),
    }


def _conditions(given: Mapping[str, object]) -> dict[str, object]:
    found = device_conditions(torch.device("cpu"), **given)
    versions: Any = found["versions"]
    versions["transformers"] = transformers.__version__
    return found


def _command(budget: float, parts: Sequence[str], continuations: int) -> str:
    """Return the command that makes these tables."""
    names = " ".join(parts)
    return (
        f"specviz study heads --budget {budget:g} --parts {names} --continuations {continuations}"
    )


def planned_steps(
    contenders: Sequence[Contender],
    pair: Pair,
    features: StoredFeatures,
    out: Path,
    budget: float,
    *,
    progress: bool = True,
) -> dict[str, dict[str, Any]]:
    """Return the steps of each contender and their CPU seconds, by label.

    Contenders that are not in `out/steps.json` are measured and written to it.
    """
    path = out / PLAN
    kept: dict[str, Any] = {"budget_s": budget, "contenders": {}}
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["budget_s"] != budget:
        raise ValueError(
            f"budget must be {kept['budget_s']:g} in {quoted_path(out)}, where trainings of that "
            f"budget lie, got {budget:g}; pass that, or another folder"
        )
    known = kept["contenders"]
    missing = [each for each in contenders if each.label not in known]
    # A part of the budget costs as much a step as all of it.
    distinct = {each.name: each for each in missing}
    if distinct:
        seconds = measure_steps(list(distinct.values()), pair.target, features, progress=progress)
        by_name = dict(zip(distinct, seconds, strict=True))
        for each in missing:
            steps = max(round(budget * each.share / by_name[each.name]), 1)
            known[each.label] = {"steps": steps, "step_s": by_name[each.name]}
        write(path, (json.dumps(kept, indent=2) + "\n").encode())
    return {each.label: known[each.label] for each in contenders}


def trained(
    contender: Contender,
    pair: Pair,
    features: StoredFeatures,
    texts: Sequence[Text],
    out: Path,
    planned: Mapping[str, Any],
    progress: bool,
) -> dict[str, Any]:
    """Return what was counted of a contender, from its file if it is there, else by training it.

    Raises:
        ValueError: the file is of another training.
    """
    path = make_folder(out / "trainings") / f"{contender.label}.json"
    plan = contender.plan(planned["steps"])
    owner = {
        "contender": contender.facts(),
        "plan": asdict(plan),
        "target": fingerprint(pair.target),
        "window_tokens": int(features.tokens.size),
        "prompts": len(texts),
    }
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if {name: found[name] for name in owner} != owner:
            raise ValueError(
                f"{quoted_path(path)} is of another training; remove it, or pass another folder"
            )
        return found
    head = new_head(contender.kind, pair.target, plan, **contender.changes)
    job = job_of(
        f"study-{contender.label}", out / "checkpoints", pair.target, plan, progress=progress
    )
    history = train_from(features, job, head, pair.target, plan).history
    hits = count_hits(head, texts, head.settings.heads or STEPS, K)
    found = owner | {
        "columns": contender.describe(head.settings),
        "parameters": sum(parameter.numel() for parameter in head.parameters()),
        "step_s": planned["step_s"],
        "history": history,
        "hits": {name: np.asarray(counts).tolist() for name, counts in asdict(hits).items()},
    }
    write(path, json.dumps(found).encode())
    return found
