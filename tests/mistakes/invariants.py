"""Plausible wrong answers to the exercises of 03_invariants."""

from typing import Any

import numpy as np


def columns_since_the_first(mask: np.ndarray) -> np.ndarray:
    return np.maximum(np.arange(len(mask)) - mask.argmax(), 0)


def from_one(mask: np.ndarray) -> np.ndarray:
    return mask.cumsum()


def pairs(feeds: dict[str, np.ndarray], wrong: np.ndarray) -> set[tuple[int, int]]:
    return set(zip(feeds["round"][wrong].tolist(), feeds["row"][wrong].tolist(), strict=True))


def slots_taken_for_positions(feeds: dict[str, np.ndarray]) -> set[tuple[int, int]]:
    return pairs(feeds, feeds["position"] != feeds["slot"])


def target_alone(feeds: dict[str, np.ndarray]) -> set[tuple[int, int]]:
    return pairs(feeds, (feeds["position"] != feeds["index"]) & (feeds["phase"] == 0))


def holes_forgotten(
    feeds: dict[str, np.ndarray], holes: dict[str, np.ndarray]
) -> set[tuple[int, int]]:
    return pairs(feeds, feeds["visible_stop"] - feeds["visible_start"] != feeds["index"] + 1)


def own_slot_forgotten(
    feeds: dict[str, np.ndarray], holes: dict[str, np.ndarray]
) -> set[tuple[int, int]]:
    hidden = np.bincount(
        holes["feed"], weights=holes["stop"] - holes["start"], minlength=len(feeds["slot"])
    )
    return pairs(feeds, feeds["visible_stop"] - feeds["visible_start"] - hidden != feeds["index"])


WRONG: dict[str, list[tuple[Any, ...]]] = {
    "realigned": [(13, [4, 2, 0]), (11, [-2, 0, 2]), (11, [3, 3, 3])],
    "position_ids": [
        (columns_since_the_first,),
        (from_one,),
        (lambda mask: np.arange(len(mask)),),
        (lambda mask: mask.cumsum()[mask > 0] - 1,),
    ],
    "positions_check": [(slots_taken_for_positions,), (target_alone,), (lambda feeds: set(),)],
    "mask_check": [(holes_forgotten,), (own_slot_forgotten,), (lambda feeds, holes: set(),)],
    "found": [
        (1, "mask", 3, 1),
        (1, "mask", 2, 2),
        (1, "kv", 3, 2),
        (2, "acceptance", 0, 2),
        (3, "positions", 2, 2),
        (4, "mask", 1, 4),
        (4, "kv", 1, 5),
        (5, "mask", 0, 1),
        (6, "kv", 0, 0),
        (1, "masks", 3, 2),
    ],
}
