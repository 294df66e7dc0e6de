"""The project's own files agree: one Python floor, one place with pinned versions, every dependency
declared and pinned.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def read_project(text: str) -> dict[str, Any]:
    """The [project] table of a pyproject.toml."""
    return tomllib.loads(text)["project"]


def read_pins(text: str) -> dict[str, str]:
    """Distribution name -> version of a constraints file; a line that is not an exact pin raises
    ValueError.
    """
    pins = {}
    for line in text.splitlines():
        content = line.partition("#")[0].strip()
        if not content:
            continue
        name, equals, version = content.partition("==")
        if not equals or not version or "*" in version:
            raise ValueError(f"{content!r} is not name==version")
        if canonicalize_name(name) in pins:
            raise ValueError(f"{name} is pinned twice")
        pins[canonicalize_name(name)] = version.strip()
    return pins


def direct_requirements(project: dict[str, Any]) -> list[Requirement]:
    """What the project itself asks for, the extras included."""
    extras = project.get("optional-dependencies", {}).values()
    return [
        Requirement(text)
        for text in [*project["dependencies"], *(text for extra in extras for text in extra)]
    ]


def pin_problems(project: dict[str, Any], pins: dict[str, str]) -> list[str]:
    """Dependencies without a lower bound, without a pin, pinned outside their range, or pinned in
    pyproject.toml itself.
    """
    problems = []
    for requirement in direct_requirements(project):
        pin = pins.get(canonicalize_name(requirement.name))
        operators = {part.operator for part in requirement.specifier}
        if "==" in operators or "===" in operators:
            problems.append(f"{requirement} pins a version outside constraints.txt")
        elif ">=" not in operators:
            problems.append(f"{requirement} names no oldest version")
        if pin is None:
            problems.append(f"{requirement.name} is not in constraints.txt")
        elif pin not in requirement.specifier:
            problems.append(f"{requirement.name}=={pin} is outside {requirement.specifier}")
    return problems


def environment_problems(environment: dict[str, Any], project: dict[str, Any]) -> list[str]:
    """Where a conda environment differs from the project: Python floor, versions of its own,
    constraints or extras left out.
    """
    problems = []
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    pip_lines = next(
        (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)), []
    )
    pythons = [Requirement(entry) for entry in conda if re.match(r"python\b", entry)]
    floors = [
        part.version
        for requirement in pythons
        for part in requirement.specifier
        if part.operator == ">="
    ]
    if floors != [
        part.version for part in SpecifierSet(project["requires-python"]) if part.operator == ">="
    ]:
        problems.append(
            f"Python from {floors}, but pyproject.toml says {project['requires-python']}"
        )
    versioned = [
        entry for entry in conda if re.search(r"[<>=]", entry) and not re.match(r"python\b", entry)
    ]
    versioned += [line for line in pip_lines if re.search(r"[<>=~]=?\s*\d", line)]
    problems += [f"{entry!r} carries a version" for entry in versioned]
    if pip_lines[:1] != ["-c constraints.txt"]:
        problems.append("pip does not start from -c constraints.txt")
    extras = ",".join(project["optional-dependencies"])
    if f"-e .[{extras}]" not in pip_lines:
        problems.append(f"pip does not install -e .[{extras}]")
    return problems


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return read_project((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def environment() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def test_dependencies_are_pinned_once(project):
    assert pin_problems(project, read_pins((ROOT / "constraints.txt").read_text())) == []


@pytest.mark.parametrize(
    ("requirement", "pins", "problem"),
    [
        ("torch>=2.11", {}, "not in constraints"),
        ("torch>=2.11", {"torch": "2.10"}, "outside >=2.11"),
        ("torch==2.13", {"torch": "2.13"}, "outside constraints"),
        ("torch", {"torch": "2.13"}, "no oldest version"),
    ],
)
def test_pin_problems_are_found(requirement, pins, problem):
    for project in (
        {"dependencies": [requirement]},
        {"dependencies": [], "optional-dependencies": {"dev": [requirement]}},
    ):
        (found,) = pin_problems(project, pins)
        assert problem in found


@pytest.mark.parametrize("text", ["torch>=2.13", "torch", "torch==2.*", "torch==1\nTorch==2"])
def test_constraints_are_exact_and_unique(text):
    with pytest.raises(ValueError, match=r"(?i)torch"):
        read_pins(text)


def test_conda_environment_agrees(project, environment):
    assert environment_problems(environment, project) == []


GOOD_ENVIRONMENT = ["python>=3.11", "pip", {"pip": ["-c constraints.txt", "-e .[lab,dev]"]}]


@pytest.mark.parametrize(
    ("index", "entry", "problem"),
    [
        (0, "python>=3.10", "Python from"),
        (0, "python", "Python from"),
        (1, "pip>=25", "carries a version"),
        (2, {"pip": ["-c constraints.txt", "-e .[lab,dev]", "torch==2.13.0"]}, "carries a version"),
        (2, {"pip": ["-e .[lab,dev]"]}, "constraints.txt"),
        (2, {"pip": ["-c constraints.txt", "-e ."]}, r"\[lab,dev\]"),
    ],
)
def test_environment_problems_are_found(index, entry, problem):
    project = {"requires-python": ">=3.11", "optional-dependencies": {"lab": [], "dev": []}}
    assert environment_problems({"dependencies": GOOD_ENVIRONMENT}, project) == []
    (found,) = environment_problems(
        {"dependencies": [*GOOD_ENVIRONMENT[:index], entry, *GOOD_ENVIRONMENT[index + 1 :]]},
        project,
    )
    assert re.search(problem, found)


def test_oldest_python_is_the_same_everywhere(project):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    floor = project["requires-python"].removeprefix(">=")
    assert workflow["jobs"]["unit"]["strategy"]["matrix"]["python"][0] == floor
    assert settings["tool"]["mypy"]["python_version"] == floor
    assert f"sys.version_info < ({floor.replace('.', ', ')})" in (ROOT / "Makefile").read_text()


def make_targets(makefile: str) -> list[str]:
    return re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split()


def test_workflow_has_the_jobs_and_calls_targets_that_exist():
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    workflow = yaml.safe_load(text)
    assert list(workflow["jobs"]) == ["lint", "types", "unit", "browser", "notebooks", "nightly"]
    assert workflow["concurrency"]["group"]
    systems = workflow["jobs"]["unit"]["strategy"]["matrix"]["os"]
    assert [system.partition("-")[0] for system in systems] == ["ubuntu", "macos"]
    called = set(re.findall(r"run: make ([a-z-]+)", text))
    assert called - set(make_targets((ROOT / "Makefile").read_text())) == set()


def test_citation_agrees_with_the_project(project):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert citation["repository-code"] == project["urls"]["Repository"]
    assert citation["url"] == project["urls"]["Homepage"]
    assert all(url.startswith(citation["url"]) for url in project["urls"].values())


def test_hooks_run_in_any_environment():
    """A hook that names .venv fails under conda."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks if not hook["entry"].startswith("python -m ")] == []


def test_every_make_target_is_explained():
    makefile = (ROOT / "Makefile").read_text()
    targets = make_targets(makefile)
    assert {
        "lab",
        "demo",
        "test",
        "notebooks",
        "figures",
        "bench",
        "lint",
        "wheel",
        "clean",
    } <= set(targets)
    assert [
        name for name in targets if not re.search(rf"^{name}:.*## \w", makefile, re.MULTILINE)
    ] == []


def test_release_builds_and_checks_from_a_tag():
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    on = workflow[True]  # YAML reads the key `on` as a bool
    assert on["push"]["tags"] == ["v*"]
    commands = " ".join(step.get("run", "") for step in workflow["jobs"]["build"]["steps"])
    for command in ("-m build", "twine check", "pip install", "specviz demo"):
        assert command in commands
    assert workflow["jobs"]["publish"]["needs"] == "build"
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
