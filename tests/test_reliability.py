"""docs/reliability.md: every test, file and command that it names exists, and the README leads to it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
SUBJECTS = (
    "Input", "Interruption", "Memory", "Hostile records", "Hostile text", "Numbers", "Reproducibility", "Soak", "Old data", "Supply chain",
)  # fmt: skip


def missing(text: str) -> list[str]:
    """Of what stands in backticks: files, tests (file::test) and make targets that are not there."""
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
            there = f"_add_{name.split()[1]}" in (ROOT / "specviz/cli/main.py").read_text(
                encoding="utf-8"
            )
        else:
            there = not re.fullmatch(r"test_\w+", name) or any(
                f"def {name}(" in each.read_text() for each in ROOT.glob("tests/**/*.py")
            )
        found += [] if there else [name]
    return found


def test_all_that_is_named_exists():
    assert missing(PAGE) == []


def test_what_is_missing_is_found():
    named = "`tests/test_nothing.py` `tests/test_fuzz.py::test_nothing` `make nothing` `specviz nothing` `test_of_nothing_at_all`"
    assert missing(named) == re.findall(r"`([^`]+)`", named)
    assert (
        missing(
            "`tests/test_fuzz.py` `tests/test_fuzz.py::test_only_files_are_opened` `make fuzz` `specviz demo` `x = 1`"
        )
        == []
    )


def test_every_subject_has_its_section():
    assert tuple(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == SUBJECTS


def test_the_readme_leads_there():
    assert "(docs/reliability.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
