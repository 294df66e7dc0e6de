"""The conditions of a measurement that runs no model."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version

import torch


def device_conditions(device: torch.device, **settings: object) -> dict[str, object]:
    """Return the device's name, versions, date, torch's number of threads, and `settings`."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    versions = {
        "specviz": version("specviz"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    created = datetime.now(UTC).isoformat(timespec="seconds")
    threads = torch.get_num_threads()
    measured_on = {"device": name, "versions": versions, "created": created, "threads": threads}
    return measured_on | settings
