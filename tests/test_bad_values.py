"""Every name in `sv.__all__`, and every method of it, with about twenty wrong values.

Each is refused by the project's own sentence, before any model runs and before any file is
written. A new name or parameter is swept as soon as it is there.
"""

import inspect
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from bad_values import WRONG, WorkBeganError, outcome, swept, valid
from good_calls import good_calls

import specviz as sv
from specviz.util.validate import require_int

PLACES_OF_WORK = ("specviz.engine.models.hub.Source.load",)
_FOUND = "what another function returns; users do not make one"
EXEMPT = {
    "Audit": _FOUND,
    "Chat": "made by chat",
    "Chat.forget": "in test_chat",
    "Chat.say": "in test_chat",
    "Chat.text": "in test_chat",
    "Chat.tokens": "in test_chat",
    "SamplingParams.chooser": "called by the engine",
    "Comparison": _FOUND,
    "ExpectedAcceptance": _FOUND,
    "Levers.prefill_shape": "a step of the engine",
    "Plan": _FOUND,
    "Result": _FOUND,
    "RoundEnd": "checked by TraceWriter.round",
    "SamplingReport": _FOUND,
    "TraceError": "an exception",
    "Violation": _FOUND,
    "Watched": "what sv.watch gives",
    "Watched.audit": "in test_watch",
    "WatchReport": _FOUND,
}


def forbid_work(patch: pytest.MonkeyPatch) -> None:
    """Let every forward, and whatever else takes long, raise WorkBeganError."""

    def begin(*_: object, **__: object) -> None:
        raise WorkBeganError

    good_calls()  # these make what they need first
    patch.setattr(torch.nn.Module, "__call__", begin)
    for place in PLACES_OF_WORK:
        patch.setattr(place, begin)


@pytest.fixture(scope="module", autouse=True)
def swept_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder, where what is written goes, without any work."""
    folder = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        forbid_work(patch)
        patch.chdir(folder)
        yield folder


def faults(name: str) -> list[str]:
    """How the callable of that name refuses wrong values otherwise than it should."""
    good = good_calls()[name]
    found = []
    for parameter in good.parameters:
        fits = valid(good.fits.get(parameter, ""))
        names = (parameter, *good.also_called)
        for label, value in WRONG.items():
            arguments = good.arguments | {parameter: value}
            result = outcome(lambda arguments=arguments: good.call(**arguments), names, value)
            left = clear(Path())
            if result != "accepted" and left:
                result = f"leaves {left}"
            wanted = "accepted" if label in fits else ""
            if result != wanted:
                found.append(f"{parameter}={label}: {result or 'refused'}")
    return found


def clear(folder: Path) -> list[str]:
    """Empty the folder; return what was in it."""
    left = list(folder.iterdir())
    for path in left:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [path.name for path in left]


@pytest.mark.sweep(8)
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:nothing is captured")
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("name", sorted(good_calls()))
def test_wrong_values_are_refused(name: str) -> None:
    found = faults(name)
    assert not found, "\n".join(found)


def test_every_public_name_is_swept() -> None:
    """A new one needs a good call in `good_calls`, or a reason in `EXEMPT`."""
    names = {name: each for top in sv.__all__ for name, each in callables(top, getattr(sv, top))}
    takes_something = [name for name, each in names.items() if swept(plain(each))]
    known = {*good_calls(), *EXEMPT}
    assert [name for name in takes_something if name not in known] == []
    assert [name for name in known if name not in names and ":" not in name] == []


def callables(name: str, each: Any) -> Iterator[tuple[str, Any]]:
    """The function, or the class and its methods, by name: "generate", "Trace", "Trace.save"."""
    yield name, each
    if inspect.isclass(each):
        for method, value in vars(each).items():
            is_plain = isinstance(value, FunctionType | classmethod | staticmethod)
            if is_plain and not method.startswith("_"):
                yield f"{name}.{method}", value


def plain(each: Any) -> Any:
    """The function of a class method."""
    return partial(each.__func__, None) if isinstance(each, classmethod) else each


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: 1, "accepted"),
        (lambda: int("a"), "raised in test_bad_values.py"),
        (lambda: Path(None), "raised in pathlib.py"),
        (lambda: None.shape, "raises AttributeError"),
        (lambda: require_int("size", 0), "does not name option"),
        (lambda: require_int("option", 5, 6), "hides the value"),
        (lambda: require_int("option", "a" * 9, 1, "x" * 400), "characters"),
        (lambda: require_int("option", 0, 1, "pass\n1"), "no sentence with a remedy"),
        (lambda: require_int("option", 0), ""),
    ],
)
def test_the_sweep_sees_what_is_no_sentence(call: Any, said: str) -> None:
    value = "a" * 9 if said == "characters" else 0
    found = outcome(call, ("option",), value)
    assert said in found if said else found == ""
