"""`specviz study laws`: how acceptance length grows with the training and the size of the draft.

Every draft of the ladder reads the same windows with the embedded target's distributions, and is
measured on the target's greedy texts after the bundled prompts, which are held out. A rung leaves a
file of what was counted, so that a study that was killed goes on. The tables are made from these
files alone. Rungs are trained by mark, so that an unfinished ladder has all sizes up to its mark.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from specviz.engine.heads.fingerprint import fingerprint
from specviz.engine.models.pair import Pair, load_pair
from specviz.generation.generate import generate
from specviz.prompts import load_prompts
from specviz.studies.machine import device_conditions
from specviz.util.files import make_folder, write
from specviz.util.validate import quoted_path, require_bool, require_int
from specviz.zoo.heads.training import frozen
from specviz.zoo.ladder.data import draft_windows, keep_reading
from specviz.zoo.ladder.measure import count_accepted
from specviz.zoo.ladder.rungs import (
    COOLDOWN,
    LARGE_K,
    MARKS,
    SIZES,
    SMALL_K,
    Rung,
    checked_marks,
    sizes_of,
)
from specviz.zoo.ladder.tables import lengths_of, tables_of
from specviz.zoo.ladder.training import train_rung
from specviz.zoo.pipeline import training_folder

CONTINUATIONS = 1600  # enough windows that none is read twice up to the last of MARKS
SHIPPED_TOKENS = 7_400_000  # that the shipped draft was trained on, by its card
NEW_TOKENS = 128  # of each text


def study_laws(
    out: str | Path,
    *,
    sizes: Sequence[str] = SIZES,
    marks: Sequence[int] = MARKS,
    continuations: int = CONTINUATIONS,
    limit: int | None = None,
    samples: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> tuple[dict[str, pd.DataFrame], dict[str, object]]:
    """Train the drafts of the ladder in `out`, or go on training them, and fit laws to them.

    Texts of the target, its features and checkpoints lie in `out/checkpoints`. What was counted of
    a draft lies in `out/rungs`. The tables have all drafts of that folder, so a ladder may grow by
    sizes and marks.

    Args:
        out: the folder.
        sizes: layers x width of the drafts, such as "2x256".
        marks: training tokens at a constant rate. From each mark the rates fall to 0 within a fifth
            more of tokens.
        continuations: documents that the target writes for the drafts.
        limit: bundled prompts on which drafts are measured; None for all.
        samples: bootstrap samples of the prompts, for the intervals.
        seed: of the samples.
        progress: whether to show progress bars.

    Returns:
        (tables, conditions). The tables are those of `tables_of`.

    Raises:
        ValueError: an argument cannot be used; nothing has run. Or the folder holds drafts of
            another study, or drafts that have read other windows.
        WriteError: the folder cannot be written, or the disk is full.
    """
    forms = sizes_of(sizes)
    marks = checked_marks(marks)
    require_int("continuations", continuations)
    require_int("samples", samples, 2, maximum=10_000)
    require_int("seed", seed, 0)
    require_bool("progress", progress)
    prompts = load_prompts(limit=limit)
    out = training_folder(out)
    pair = load_pair(device="cpu", dtype="float32")
    ladder = Ladder(pair, prompts, out, continuations, progress=progress)
    rungs = [Rung(size, mark) for mark in marks for size in forms]
    below: dict[str, Rung] = {}
    with frozen(pair.target):
        for rung in tqdm(rungs, unit="draft", disable=not progress):
            ladder.rung(rung, below.get(rung.size.name))
            below[rung.size.name] = rung
        shipped = ladder.shipped()
    found = ladder.all_rungs()
    given: dict[str, object] = {"prompts": len(prompts), "max_new_tokens": NEW_TOKENS}
    given |= {"num_draft_tokens": [SMALL_K, LARGE_K], "window_tokens": found[0]["window_tokens"]}
    given |= {"cooldown": COOLDOWN, "samples": samples, "seed": seed}
    given["shipped"] = {"tokens": SHIPPED_TOKENS} | lengths_of(shipped)
    given["command"] = _command(sizes, marks, continuations)
    return tables_of(found, shipped, samples, seed), _conditions(given)


def _conditions(given: Mapping[str, object]) -> dict[str, object]:
    found = device_conditions(torch.device("cpu"), **given)
    versions: Any = found["versions"]
    versions["transformers"] = transformers.__version__
    return found


def _command(sizes: Sequence[str], marks: Sequence[int], continuations: int) -> str:
    """Return the command that makes these tables."""
    return (
        f"specviz study laws --sizes {' '.join(sizes)} --marks {' '.join(map(str, marks))} "
        f"--continuations {continuations}"
    )


class Ladder:
    """The rungs in a folder. What a rung is trained and measured on is made when first needed."""

    def __init__(
        self,
        pair: Pair,
        prompts: Sequence[str],
        out: Path,
        continuations: int,
        *,
        progress: bool = True,
    ) -> None:
        self.pair = pair
        self.prompts = prompts
        self.work = out / "checkpoints"
        self.counts = make_folder(out / "rungs")
        self.continuations = continuations
        self.progress = progress

    def rung(self, rung: Rung, below: Rung | None) -> dict[str, Any]:
        """Return what was counted of a rung, from its file if it is there, else by training it.

        Raises:
            ValueError: the file is of another study, or a rung has read other windows.
        """
        return self._kept(rung.name, lambda: self._trained(rung, below))

    def _trained(self, rung: Rung, below: Rung | None) -> dict[str, Any]:
        self._check_windows()
        reading = keep_reading(
            self.pair, self.windows, rung.steps, self.work, progress=self.progress
        )
        draft, history = train_rung(
            rung, below, self.pair.target, reading, self.work, progress=self.progress
        )
        counted = self._counted(draft, rung.size.name, rung.mark)
        return counted | {"history": history, **self.reading}

    def _check_windows(self) -> None:
        """Raise ValueError if a rung of the folder has read other windows than those of today."""
        for path in sorted(self.counts.glob("*-*.json")):
            kept = self._kept(path.stem, dict)
            # Older files say only how many tokens the windows have.
            if self.reading != {name: kept.get(name, own) for name, own in self.reading.items()}:
                raise ValueError(
                    f"the draft of {quoted_path(path)} has read other windows than this Python's "
                    "library gives; remove that folder's rungs, or pass another folder"
                )

    def all_rungs(self) -> list[dict[str, Any]]:
        """Return what was counted of all rungs in the folder, by mark and parameters.

        Raises:
            ValueError: a file is of another study.
        """
        found = []
        for path in sorted(self.counts.glob("*-*.json")):
            found.append(self._kept(path.stem, dict))
        return sorted(found, key=lambda each: (each["mark"], each["parameters"]))

    def shipped(self) -> dict[str, Any]:
        """Return what was counted of the shipped draft, which was trained longer, on another mix.

        Raises:
            ValueError: the file is of another study.
        """
        draft = self.pair.draft
        return self._kept("shipped", lambda: self._counted(draft, "shipped", SHIPPED_TOKENS))

    def _kept(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what lies in the file of that name, or make and keep it."""
        path = self.counts / f"{name}.json"
        if path.exists():
            kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if {name: kept.get(name) for name in self.owner} != self.owner:
                raise ValueError(
                    f"{quoted_path(path)} is of another study; remove it, or pass another folder"
                )
            return kept
        found = self.owner | make()
        write(path, json.dumps(found).encode())
        return found

    def _counted(self, draft: PreTrainedModel, size: str, mark: int) -> dict[str, Any]:
        inside = sum(value.numel() for value in draft.base_model.layers.parameters())
        return {
            "size": size,
            "layers": draft.config.num_hidden_layers,
            "width": draft.config.hidden_size,
            "mark": mark,
            "parameters": draft.num_parameters(),
            "layer_parameters": inside,
            "accepted": [count_accepted(draft, *text).tolist() for text in self.texts],
        }

    @cached_property
    def owner(self) -> dict[str, Any]:
        """What tells this study's rungs from those of another one."""
        prompts = json.dumps(list(self.prompts)).encode()
        return {
            "target": fingerprint(self.pair.target),
            "continuations": self.continuations,
            "prompts": hashlib.sha256(prompts).hexdigest(),
            "max_new_tokens": NEW_TOKENS,
        }

    @cached_property
    def windows(self) -> np.ndarray:
        """What drafts read."""
        return draft_windows(self.pair, self.continuations, self.work, progress=self.progress)

    @cached_property
    def reading(self) -> dict[str, Any]:
        """What tells these windows from those of another library."""
        digest = hashlib.sha256(self.windows.tobytes()).hexdigest()
        return {"window_tokens": int(self.windows.size), "windows": digest}

    @cached_property
    def texts(self) -> list[tuple[list[int], list[int]]]:
        """Prompts, and what the target writes greedily after each."""
        result = generate(
            self.pair,
            self.prompts,
            strategy="autoregressive",
            batch_size=len(self.prompts),
            max_new_tokens=NEW_TOKENS,
            progress=self.progress,
        )
        return list(zip(map(list, result.prompts), result.tokens, strict=True))
