"""What decoding knows by name, the limits of its numbers, and how names with options are written.

Imports no torch, so that a command can refuse a wrong name before the seconds that this takes.
"""

from collections.abc import Iterable

from specviz.util.validate import is_real, short

COUPLINGS = ("rejection", "gumbel")

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
