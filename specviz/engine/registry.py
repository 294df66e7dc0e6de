"""Names for things that are chosen by name: the same lookup, options and errors for strategies and drafters."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def make(kind: str, known: Mapping[str, type[T]], name: object, options: Mapping[str, Any]) -> T:
    """The object registered as `name`, made with `options`.

    Raises:
        ValueError: the name is unknown, or the object takes no such option; both list what there is.
    """
    if not isinstance(name, str) or name not in known:
        raise ValueError(
            f"{kind}={name!r} is unknown; choose one of {', '.join(sorted(known))}, or pass an object of your own"
        )
    kind_of = known[name]
    offered = sorted(field.name for field in fields(kind_of)) if is_dataclass(kind_of) else []
    unknown = sorted(set(options) - set(offered))
    if unknown:
        instead = f"its options are {', '.join(offered)}" if offered else "it has none"
        raise ValueError(f"{kind} {name!r} takes no option {unknown[0]!r}; {instead}")
    return kind_of(**options)
