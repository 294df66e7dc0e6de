"""What lies on which device, where a `device_map` has spread a model.

Contract: reads where the models' layers are, and shares out the parts of a plan. No model runs.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from transformers import PreTrainedModel

from specviz.costs.memory import Part, peak_of

_LAYER = re.compile(r"\.(\d+)\.")
_ELSEWHERE = ("cpu", "disk")  # where a device_map lets weights wait for their turn


def by_device(models: Sequence[PreTrainedModel], parts: Sequence[Part]) -> pd.DataFrame:
    """Return what each device holds at most.

    Weights lie where the models' parameters are. A layer's K/V lies where the layer runs, and so do
    states; both are shared out evenly, as if all layers had some. Anything else counts on every
    device that runs layers, since it may be there: logits, tokens, and the workspace of the phase
    that needs most.

    Columns: device, layers (of the target, as "0-3, 8"; "" if there are none), weight_bytes,
    kv_bytes, work_bytes and peak_bytes, which is their sum.

    Args:
        models: the target and, where a model drafts, the draft.
        parts: of the plan.
    """
    sizes = {part: size for part, _, size in parts}
    weights: dict[str, int] = defaultdict(int)
    kv: dict[str, float] = defaultdict(float)
    layers: dict[str, list[int]] = defaultdict(list)
    for name, model in zip(("target", "draft"), models, strict=False):
        runs = _layer_devices(model)
        for parameter_name, parameter in model.named_parameters():
            weights[_place(model, parameter_name, parameter)] += parameter.nbytes
        for number, device in runs.items():
            held = sizes[f"{name} K/V"] + sizes.get(f"{name} states", 0)
            kv[device] += held / len(runs)
            if name == "target":
                layers[device].append(number)
    kinds = ("weights", "K/V", "states")
    shared = {f"{role} {kind}" for role in ("target", "draft") for kind in kinds}
    work = peak_of([part for part in parts if part[0] not in shared])
    entries = [
        {
            "device": device,
            "layers": _spans(layers.get(device, [])),
            "weight_bytes": weights.get(device, 0),
            "kv_bytes": round(kv.get(device, 0)),
            "work_bytes": work if device in kv else 0,
        }
        for device in dict.fromkeys([*kv, *weights])
    ]
    table = pd.DataFrame(entries)
    summed = table[["weight_bytes", "kv_bytes", "work_bytes"]].sum(axis=1)
    return table.assign(peak_bytes=summed)


def _layer_devices(model: PreTrainedModel) -> dict[int, str]:
    """Return where each layer runs, by its number. A model without layers counts as one."""
    found: dict[int, str] = {}
    devices = [str(place) for place in _device_map(model).values()]
    main = next((place for place in map(_named, devices) if place not in _ELSEWHERE), None)
    for name, parameter in model.named_parameters():
        numbered = _LAYER.search(name)
        place = _place(model, name, parameter)
        # Weights that wait on the CPU or on a disk are brought to the device that computes.
        if main is not None and place in _ELSEWHERE:
            place = main
        if numbered is not None:
            found.setdefault(int(numbered[1]), place)
    return found or {0: main or str(model.device)}


def _place(model: PreTrainedModel, name: str, parameter: torch.Tensor) -> str:
    """Return where a parameter is, by the device_map if there is one."""
    places = _device_map(model)
    fitting = [key for key in places if key == "" or f"{name}.".startswith(f"{key}.")]
    if not fitting:
        return str(parameter.device)
    return _named(str(places[max(fitting, key=len)]))


def _device_map(model: PreTrainedModel) -> dict[str, Any]:
    places: dict[str, Any] = getattr(model, "hf_device_map", {})
    return places


def _named(place: str) -> str:
    return f"cuda:{place}" if place.isdecimal() else place


def _spans(numbers: Sequence[int]) -> str:
    """Return numbers as text: "0-3, 8"."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ", ".join("-".join(map(str, span)) for span in spans)
