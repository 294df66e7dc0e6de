"""What decoding knows by name, the limits of its numbers, and how names with options are written.

Imports no torch, so that a command can refuse a wrong name before the seconds that this takes.
"""

from collections.abc import Iterable
from pathlib import Path

from specviz.util.files import is_dir, is_file
from specviz.util.validate import is_real, quoted_path, short

COUPLINGS = ("rejection", "gumbel")
HEAD_CONFIG = "config.json"  # in the folder of a draft head
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-5, 1e5  # scores beyond these would leave float32's range
OWN_OBJECT = ", or pass an object of your own"  # a remedy that the command line does not have
# A remedy of commands, for sampling=None in Python.
WITHOUT_TEMPERATURE = ", or leave --temperature out for greedy decoding"

_CONSTANTS = {"true": True, "false": False, "none": None}


def parse(text: str) -> tuple[str, dict[str, object]]:
    """Split "name:option=value,option=value" into name and options.

    Numbers, true, false and none become their values, a/b becomes a list.

    Raises:
        ValueError: an option has no value.
    """
    name, _, rest = text.partition(":")
    options: dict[str, object] = {}
    for part in rest.split(",") if rest else []:
        option, _, value = part.partition("=")
        if not option or not value:
            raise ValueError(
                f"the options in {text!r} must be option=value, got {part!r}; "
                "write for instance exspec:window=32,fallback=wait"
            )
        options[option.strip()] = _value(value.strip())
    return name.strip(), options


def require_known(kind: str, known: Iterable[str], name: object) -> None:
    """Raise ValueError unless `name` is one of those known. kind: "strategy", "drafter" ..."""
    names = sorted(known)
    if not isinstance(name, str) or name not in names:
        raise ValueError(
            f"{kind}={short(name)} is unknown; choose one of {', '.join(names)}{OWN_OBJECT}"
        )


def check_temperature(
    value: object, greedy: str = ", or sampling=None for greedy decoding"
) -> float:
    """Return a temperature as a float. Raise ValueError for one that cannot be used.

    greedy: what the message says on greedy decoding, if the caller takes no `sampling`.
    """
    if not is_real(value) or not MIN_TEMPERATURE <= value <= MAX_TEMPERATURE:
        raise ValueError(
            f"temperature must be a number from {MIN_TEMPERATURE} to {MAX_TEMPERATURE}, "
            f"got {short(value)}; pass one{greedy}"
        )
    return float(value)


def check_top_p(value: object) -> float:
    """Return a top_p as a float. Raise ValueError for one that cannot be used."""
    if not is_real(value) or not 0 < value <= 1:
        raise ValueError(
            f"top_p must be a number above 0 and at most 1, got {short(value)}; "
            "pass for instance 0.9, or None for all tokens"
        )
    return float(value)


def _value(text: str) -> object:
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if "/" in text:
        return [_value(part) for part in text.split("/")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def check_device_map(device_map: object, device: str | None) -> None:
    """Raise ValueError for a word that is no device map, or for a device besides."""
    if device is not None:
        raise ValueError(
            f"device={short(device)} and device_map={short(device_map)} exclude each other; "
            "leave one out"
        )
    if isinstance(device_map, str) and device_map not in DEVICE_MAPS:
        raise ValueError(
            f"device_map={short(device_map)} is unknown; choose one of {', '.join(DEVICE_MAPS)}, "
            "or a dict from modules to devices; for one device pass device="
        )


def head_folders(path: Path) -> list[Path]:
    """Return the folders of single heads in `path`, which may be one itself.

    Raises FileNotFoundError if there are none.
    """
    if not is_dir(path):
        raise FileNotFoundError(
            f"folder={quoted_path(path)} does not exist; "
            "pass one that `zoo.heads.export_head` wrote"
        )
    if is_file(path / HEAD_CONFIG):
        return [path]
    configs = sorted(path.glob(f"*/{HEAD_CONFIG}"))
    if not configs:
        raise FileNotFoundError(
            f"folder={quoted_path(path)} holds no draft head: there is no {HEAD_CONFIG} in it or "
            "in a folder of it; pass one that `zoo.heads.export_head` wrote"
        )
    return [config.parent for config in configs]
