"""Plant known bugs, one at a time, and see that the fast tests catch each of them.

Run as `PYTHONPATH=tests python -m planted_bugs [NAME ...]`, or `make planted`. Who merges or
removes tests learns here whether protection was lost. Each bug is a mistake that somebody could
make, and names the fast tests that have to fail. The bugs are planted in a copy of the repository.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAST = "not slow and not browser and not gpu"
LIMIT_S = 300  # a bug that makes the tests hang is not caught
CAUGHT = "caught"
PASSED, FAILED, NO_TESTS = 0, 1, 5  # exit statuses of pytest; of the others, none is a verdict


@dataclass(frozen=True)
class Bug:
    """A mistake, and the tests that are to notice it.

    Attributes:
        file: below the root.
        old, new: the text that is replaced, which occurs once in the file, and what replaces it.
        harm: what would go wrong for a user.
        tests: arguments for pytest.
    """

    name: str
    file: str
    old: str
    new: str
    harm: str
    tests: str

    def planted(self, text: str) -> str:
        """Return the file's text with the bug. Raise ValueError unless `old` occurs once."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"its old text occurs {found} times in {self.file}")
        return text.replace(self.old, self.new)


LIST = Path(__file__).with_suffix(".toml")
BUGS = tuple(Bug(**each) for each in tomllib.loads(LIST.read_text(encoding="utf-8"))["bug"])


def copy_repository(to: Path) -> Path:
    """Copy what tests may read, without environments and caches. Return the copy's root."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "runs", "training")
    return Path(shutil.copytree(ROOT, to, ignore=ignored))


def environment(copy: Path) -> dict[str, str]:
    """Return the variables under which Python imports specviz from the copy."""
    return {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}


def imported_from(copy: Path) -> Path:
    """Return the file that `import specviz` reads in a process that tests the copy."""
    code = "from importlib.util import find_spec; print(find_spec('specviz').origin)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=copy,
        env=environment(copy),
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(done.stdout.strip())


def run_tests(copy: Path, *arguments: str) -> tuple[int | None, str]:
    """Run pytest in the copy. Return its exit status, None if the tests hang, and its output."""
    # The cache keeps which tests failed, see `fail_anyway`.
    cache = f"cache_dir={copy.parent / 'cache'}"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-m", FAST, "-o", cache, *arguments],
            cwd=copy,
            env=environment(copy),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"the tests took more than {LIMIT_S} s"
    return done.returncode, done.stdout + done.stderr


def verdict(bug: Bug, copy: Path) -> str:
    """Plant a bug in the copy, run its tests, remove it again, and say what came of it."""
    path = copy / bug.file
    text = path.read_text(encoding="utf-8")
    try:
        planted = bug.planted(text)
    except ValueError as error:
        return f"cannot be applied: {error}"
    # The file gets a new time, as it does below, so that no bytecode of another text is used.
    path.write_text(planted, encoding="utf-8")
    try:
        status, output = run_tests(copy, "-x", *shlex.split(bug.tests))
    finally:
        path.write_text(text, encoding="utf-8")
    if status == FAILED:
        return CAUGHT
    if status == PASSED or status is None:
        return f"NOT CAUGHT by {bug.tests}: {bug.harm}"
    return f"cannot be judged: pytest ended with {status}\n{output[-2000:]}"


def fail_anyway(copy: Path) -> str:
    """Run what failed once more, without a bug. Return pytest's output if some of it fails."""
    # A test that failed for one bug and passed for another is not run again: it can pass.
    status, output = run_tests(copy, "--last-failed", "--last-failed-no-failures=none", "tests")
    return "" if status in (PASSED, NO_TESTS) else output[-2000:]


def main(names: Sequence[str]) -> int:
    """Try the named bugs, or all; return 0 if every one of them is caught."""
    known = [bug.name for bug in BUGS]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"{unknown[0]!r} is not a bug of the list; choose from {', '.join(known)}")
        return 2
    chosen = [bug for bug in BUGS if not names or bug.name in names]
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_repository(Path(folder).resolve() / "specviz-with-a-bug")
        origin = imported_from(copy)
        if not origin.is_relative_to(copy):
            print(f"specviz is imported from {origin}, not from the copy in {copy}")
            return 2
        caught = 0
        for bug in chosen:
            begun = time.monotonic()
            said = verdict(bug, copy)
            caught += said == CAUGHT
            print(f"{bug.name:25} {time.monotonic() - begun:5.1f} s  {said}", flush=True)
        print(f"{caught} of {len(chosen)} bugs are caught")
        failures = fail_anyway(copy)
    if failures:
        print(f"but some of these tests fail without a bug, too:\n{failures}")
    return 1 if failures or caught < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
