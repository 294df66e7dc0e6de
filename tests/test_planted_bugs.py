"""The list of planted bugs fits the code of today, so that `make planted` can try all of them."""

import re
import shlex

import pytest
from planted_bugs import BUGS, ROOT, Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug):
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    planted = bug.planted(text)
    assert planted != text
    compile(planted, bug.file, "exec")  # it has to parse
    where, *options = shlex.split(bug.tests)
    tests = (ROOT / where).read_text(encoding="utf-8")
    assert options[:1] in ([], ["-k"])
    for word in re.findall(r"\w+", " ".join(options[1:])):
        assert word == "or" or re.search(rf"def test_\w*{word}", tests), f"no test is named {word}"


def test_every_room_has_a_bug_and_every_bug_a_name():
    files = [bug.file for bug in BUGS if bug.file.startswith("specviz/")]
    rooms = {file.split("/")[1].removesuffix(".py") for file in files}
    folders = (ROOT / "specviz").iterdir()
    every = {path.stem for path in folders if path.is_dir() or path.suffix == ".py"}
    assert rooms == every - {"__init__", "__main__", "__pycache__"}
    assert len({bug.name for bug in BUGS}) == len(BUGS)


def test_an_entry_that_does_not_fit_is_refused():
    bug = Bug("name", "file.py", old="a", new="b", harm="", tests="")
    assert bug.planted("cat") == "cbt"
    for text in ("dog", "banana"):
        with pytest.raises(ValueError, match=r"occurs \d times in file.py"):
            bug.planted(text)
