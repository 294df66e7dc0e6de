"""Names for things that are chosen by name: the same lookup, options and errors for strategies and drafters."""

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def make(kind: str, known: Mapping[str, type[T]], name: str, options: Mapping[str, Any]) -> T:
    """The object registered as `name`, made with `options`.

    Raises:
        ValueError: the name is unknown, or the object takes no such option; both list what there is.
    """
    if name not in known:
        raise ValueError(f"{kind}={name!r} is unknown; choose one of {', '.join(sorted(known))}, or pass an object of your own")
    fields = getattr(known[name], "__dataclass_fields__", {})
    unknown = sorted(set(options) - set(fields))
    if unknown:
        offered = f"its options are {', '.join(sorted(fields))}" if fields else "it has none"
        raise ValueError(f"{kind} {name!r} takes no option {unknown[0]!r}; {offered}")
    return known[name](**options)
