"""Where models go: one device, or the devices of a `device_map`."""

from collections.abc import Mapping

import torch
from transformers.utils import is_accelerate_available

from specviz.engine.names import DEVICE_MAPS, check_device_map
from specviz.util.validate import short

DeviceMap = str | Mapping[str, int | str]


def find_device(name: str | None, argument: str = "device") -> torch.device:
    """Return the device of that name; for None, CUDA where available, else the CPU.

    Raises ValueError if the device is unknown or absent. argument: what the message calls it.
    """
    has_cuda = torch.cuda.is_available()
    present = ["cpu"]
    if has_cuda:
        present += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        present.append("mps")
    if name is None:
        return torch.device("cuda:0" if has_cuda else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError, OverflowError, ValueError):
        raise ValueError(
            f"{argument}={short(name)} is unknown; "
            f"pass one that this machine has: {', '.join(present)}"
        ) from None
    # A machine has one CPU and one MPS device, which may also be called cpu:0 and mps:0.
    is_single = device.type in ("cpu", "mps") and not device.index
    full_name = device.type if is_single else f"{device.type}:{device.index or 0}"
    if full_name not in present:
        raise ValueError(
            f"{argument}={short(name)} is not there; "
            f"pass one that this machine has: {', '.join(present)}"
        )
    return torch.device(device.type) if is_single else device


def check_places(device_map: DeviceMap | None, device: str | None) -> torch.device | None:
    """Return the device that is named; None with a `device_map`.

    Raises ValueError or ImportError, as `load_pair`, for one that cannot be used.
    """
    if device_map is None:
        return find_device(device)
    _check_device_map(device_map, device)
    return None


def _check_device_map(device_map: object, device: str | None) -> None:
    check_device_map(device_map, device)
    if not isinstance(device_map, str | Mapping) or not device_map:
        raise ValueError(
            f"device_map must be a str or a dict, got {short(device_map)}; "
            f"pass one of {', '.join(DEVICE_MAPS)}, or a dict from modules to devices"
        )
    if isinstance(device_map, Mapping):
        for place in device_map.values():
            if place != "disk":
                find_device(f"cuda:{place}" if isinstance(place, int) else place, "device_map")
    if not is_accelerate_available():
        raise ImportError(
            f"device_map={device_map!r} needs accelerate, which is not installed; "
            'run: pip install "specviz[accelerate]"'
        )
