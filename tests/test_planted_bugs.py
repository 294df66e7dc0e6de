"""The list of planted bugs fits the code of today, so that `make planted` can try all of them."""

import re
import shlex

import pytest
from planted_bugs import BUGS, ROOT, Bug
from test_boundaries import LAYERS


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
    rooms = {bug.file.split("/")[1].removesuffix(".py") for bug in BUGS}
    assert rooms == {room for layer in LAYERS for room in layer}
    assert len({bug.name for bug in BUGS}) == len(BUGS)


def test_an_entry_that_does_not_fit_is_refused():
    bug = Bug("name", "file.py", old="a", new="b", harm="", tests="")
    assert bug.planted("cat") == "cbt"
    for text in ("dog", "banana"):
        with pytest.raises(ValueError, match=r"occurs \d times in file.py"):
            bug.planted(text)
