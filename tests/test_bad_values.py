"""Every public callable, and every option of every command, with about twenty wrong values.

Each is refused by the project's own sentence, before any model runs and before any file is
written. What is public is found by looking (`public_names`), so a new name, parameter or option is
swept as soon as it is there.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from bad_values import WRONG, WorkBeganError, outcome, valid
from good_calls import good_calls

PLACES_OF_WORK = (
    "specviz.engine.models.hub.Source.load",
    "specviz.views.stepper.export.figure",
    "specviz.bench.sources.random_model",
    "specviz.zoo.pipeline.read_corpus",
    "specviz.studies.ceilings._measure",
    "specviz.studies.moves._measure",
)


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
            wanted = "accepted" if label in fits else ""
            if result != wanted:
                found.append(f"{parameter}={label}: {result or 'refused'}")
    return found


@pytest.mark.parametrize("name", sorted(good_calls()))
def test_wrong_values_are_refused(name: str) -> None:
    found = faults(name)
    assert not found, "\n".join(found)
