"""Dependencies: licences are known, versions fit each other, the oldest are tested."""

import os
import re
import subprocess
import sys
from pathlib import Path

import licences
import pytest
from packaging.utils import canonicalize_name
from test_house import ASKED, PROJECT, pins

ROOT = Path(__file__).parents[1]
COPYLEFT = re.compile(
    r"\bA?GPL", re.IGNORECASE
)  # LGPL begins with another letter, and is not in the table either


def test_every_dependency_states_a_licence_and_none_is_copyleft():
    """Direct dependencies, and indirect ones as they are installed here."""
    found = licences.licences()
    assert {name for name, text in found.items() if not text} == set()
    assert {name: text for name, text in found.items() if COPYLEFT.search(text)} == {}
    assert {canonicalize_name(each.name) for each in ASKED} <= set(found)


def test_licences_are_read_from_the_packages():
    assert licences.licence("transformers") == "Apache-2.0"
    assert licences.licence("nowhere") == ""
    assert licences.closure()["hypothesis"] == "extra dev"
    assert "| transformers | specviz | Apache-2.0 |" in licences.table()


def test_our_own_licence_is_the_one_that_is_stated():
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]


@pytest.mark.slow
def test_the_installed_packages_fit_each_other():
    """`pip check`, of this environment."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    if "No module named pip" in done.stderr:
        pytest.skip("this environment was made without pip")
    assert done.returncode == 0, done.stdout


def test_the_lowest_set_is_the_oldest_that_is_asked_for():
    lowest, newest = pins("constraints-lowest.txt"), pins("constraints.txt")
    asked = {each.name: each.specifier for each in ASKED}
    (floor,) = (part.version for part in asked["transformers"])
    assert lowest["transformers"].startswith(f"{floor}.")
    assert set(lowest) <= set(newest)
    hub = lowest["huggingface-hub"], newest["huggingface-hub"]
    assert hub[0] in asked["huggingface_hub"]
    assert hub[0].split(".")[0] != hub[1].split(".")[0]  # the hub library of its time


def test_both_sets_are_tested():
    steps = (ROOT / ".ci/run").read_text()
    bare, test, browser = (steps.index(step) for step in ("rm -f", "make test", "apt-get install"))
    assert bare < test < browser < steps.index("\nmake lowest")
    makefile = (ROOT / "Makefile").read_text()
    names = re.search(
        r"^LOWEST_TESTS \?= \$\(addprefix tests/test_,(.+)\)$", makefile, re.MULTILINE
    )[1].split()
    assert {"trace.py", "hub.py", "equivalence.py"} <= set(names)
    assert [name for name in names if not (ROOT / "tests" / f"test_{name}").is_file()] == []


def test_no_weights_but_safetensors_are_shipped():
    shipped = [
        path
        for path in (ROOT / "specviz").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert [
        path
        for path in shipped
        if path.suffix in (".bin", ".pt", ".pth", ".pkl", ".pickle", ".npy", ".npz", ".joblib")
    ] == []
    assert any(path.suffix == ".safetensors" for path in shipped)
