"""docs/reliability.md: all tests, files and commands that it names exist; the README links it."""

import re
from pathlib import Path

from specviz.cli.main import COMMANDS, STUDIES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
SUBJECTS = (
    "Input",
    "Other servers",
    "Several runs at a time",
    "Interruption",
    "Memory",
    "Hostile records",
    "Hostile text",
    "Numbers",
    "Reproducibility",
    "Soak",
    "Old data",
    "Supply chain",
)


def missing(text: str) -> list[str]:
    """Return the missing ones of the files, tests, make targets and commands in backticks."""
    targets = re.findall(r"^([\w-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    found = []
    for name in re.findall(r"`([^`]+)`", text):
        path, _, test = name.partition("::")
        if re.fullmatch(r"(tests|specviz|docs)/[\w/.-]+", path):
            there = (ROOT / path).exists() and (
                not test
                or f"def {test.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")
            )
        elif name.startswith("make "):
            there = name.split()[1] in targets
        elif name.startswith("specviz "):
            there = is_command(*name.split()[1:3])
        else:
            there = not re.fullmatch(r"test_\w+", name) or any(
                f"def {name}(" in each.read_text() for each in ROOT.glob("tests/**/*.py")
            )
        found += [] if there else [name]
    return found


def is_command(name: str, study: str = "") -> bool:
    """Tell whether `specviz NAME` exists, or `specviz study STUDY` where a study is named."""
    if name == "study":
        return study in ("", *STUDIES)
    return name in COMMANDS


def test_all_that_is_named_exists():
    assert missing(PAGE) == []


def test_what_is_missing_is_found():
    named = (
        "`tests/test_nothing.py` `tests/test_fuzz.py::test_nothing` `make nothing` "
        "`specviz nothing` `specviz study nothing` `test_of_nothing_at_all`"
    )
    assert missing(named) == re.findall(r"`([^`]+)`", named)
    existing = (
        "`tests/test_fuzz.py` `tests/test_fuzz.py::test_only_files_are_opened` `make fuzz` "
        "`specviz demo` `specviz study` `specviz study survey` `x = 1`"
    )
    assert missing(existing) == []


def test_every_subject_has_its_section():
    assert tuple(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == SUBJECTS


def test_the_readme_leads_there():
    assert "(docs/reliability.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
