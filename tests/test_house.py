"""The project's own files agree: one oldest Python, one place for versions, all explained."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)[1].split()
FLOOR = PROJECT["requires-python"].removeprefix(">=")


ASKED = [
    Requirement(text)
    for texts in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for text in texts
]


def pins(name: str) -> dict[str, str]:
    """Return the versions of a constraints file, each of them exact and stated once."""
    lines = (ROOT / name).read_text().splitlines()
    pinned = [Requirement(line) for line in lines if line.partition("#")[0].strip()]
    assert [str(pin) for pin in pinned if not re.fullmatch(r"==[^*,]+", str(pin.specifier))] == []
    found = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pinned}
    assert len(found) == len(pinned)
    return found


def test_dependencies_have_an_oldest_version_and_one_pin():
    pinned = pins("constraints.txt")
    for wanted in ASKED:
        operators = {part.operator for part in wanted.specifier}
        assert ">=" in operators, wanted
        assert "==" not in operators, wanted
        assert pinned[canonicalize_name(wanted.name)] in wanted.specifier, wanted


def test_the_conda_environment_adds_nothing_of_its_own():
    *conda, pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (python,) = (entry for entry in conda if re.search("[<>=]", entry))
    assert python.startswith(f"python>={FLOOR}")
    extras = ",".join(PROJECT["optional-dependencies"])
    assert pip == {"pip": ["-c constraints.txt", f"-e .[{extras}]"]}


def test_the_oldest_python_is_the_same_everywhere():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["unit"]["strategy"]["matrix"]["python"][0] == FLOOR
    assert SETTINGS["tool"]["mypy"]["python_version"] == FLOOR
    assert f"sys.version_info < ({FLOOR.replace('.', ', ')})" in MAKEFILE


def test_workflows_call_make_targets_that_exist_and_are_explained():
    called = re.findall(r"run: make ([a-z-]+)", (ROOT / ".github/workflows/ci.yml").read_text())
    assert {"lint", "types", "unit", "browser", "check-notebooks", "nightly"} <= set(called)
    assert set(called) <= set(TARGETS)
    explained = re.findall(r"^([a-z-]+):.*## \w", MAKEFILE, re.MULTILINE)
    assert sorted(explained) == sorted(TARGETS)


def test_the_citation_agrees_with_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    assert all(url.startswith(citation["url"]) for url in PROJECT["urls"].values())


def test_hooks_run_in_any_environment():
    """A hook that names .venv fails under conda."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks if not hook["entry"].startswith("python -m ")] == []


def test_a_release_comes_from_a_tag_and_is_checked():
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    assert workflow[True]["push"]["tags"] == ["v*"]  # YAML reads the key `on` as a bool
    commands = " ".join(step.get("run", "") for step in workflow["jobs"]["build"]["steps"])
    for command in ("-m build", "twine check", "pip install", "specviz demo"):
        assert command in commands
    assert workflow["jobs"]["publish"]["needs"] == "build"
