"""Start commands of `specviz`, send each a real SIGINT in the middle of its work, and let it end.

Run as `python interrupted.py FOLDER`. Each command is a child process, forked from this one so
that libraries are loaded once. The parent only loads them: a process that has computed with torch
may have threads that a fork does not copy.

Print one line of JSON. For each command it holds the exit status, stderr, stdout, and the files
that the command left. Under "again" it holds the exit statuses of the commands that were started
again.
"""

import json
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from conftest import VOCABULARY

from specviz.cli.main import main as cli

assert VOCABULARY  # conftest is imported for its one thread
SMALL = "--max-new-tokens 4 --limit 3"
USED = (
    "transformers.models.llama.modeling_llama",
    "specviz.bench.report",
    "specviz.generation.generate",
)
LONGEST = 1800  # seconds until a command is in the middle of its work, on a busy machine too


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def counted(folder: Path, errors: Path) -> bool:
    """Whether a bar has counted two, so that the first one's round is over for certain."""
    return any(f"{number}/" in errors.read_text() for number in range(2, 5))


def in_bench(folder: Path, errors: Path) -> bool:
    return lines(folder / "bench.jsonl.partial") > 3


# For each command, its arguments, where FOLDER stands for its folder; and whether it is in the
# middle of its work, given its folder and the file with its stderr.
COMMANDS = {
    "generate": ("generate --batch-size 1 --record FOLDER/run.safetensors", counted),
    "bench": (
        f"bench --strategies inplace eqspec --batch-sizes 1 2 {SMALL} --out FOLDER",
        in_bench,
    ),
}


def arguments(name: str, folder: Path) -> list[str]:
    return [each.replace("FOLDER", str(folder)) for each in COMMANDS[name][0].split()]


def begun(arguments: list[str], output: Path, errors: Path) -> int:
    """The command in a child process; returns its number."""
    child = os.fork()
    if child:
        return child
    # What is begun in the background by a shell ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for path, number in ((output, 1), (errors, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    try:
        status = cli(arguments)
    except BaseException:
        traceback.print_exc()
        status = 99
    os._exit(status)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def interrupted(name: str, folder: Path, seconds: float | None = None) -> dict[str, object]:
    """After so many seconds, or in the middle of its work."""
    place, output, errors = folder / name, folder / f"{name}.out", folder / f"{name}.err"
    place.mkdir()
    errors.touch()
    child, began = begun(arguments(name, place), output, errors), time.monotonic()
    while time.monotonic() - began < (LONGEST if seconds is None else seconds):
        if seconds is None and COMMANDS[name][1](place, errors):
            break
        time.sleep(0.01)
    os.kill(child, signal.SIGINT)
    report = {"status": ended(child), "said": errors.read_text(), "printed": output.read_text()}
    return report | {
        "files": sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    }


def main(folder: Path):
    for name in USED:
        import_module(name)
    found = {name: interrupted(name, folder) for name in COMMANDS}
    again = {}
    outputs = folder / "bench.out", folder / "bench.err"
    again["bench"] = ended(begun(arguments("bench", folder / "bench"), *outputs))
    early = []
    for number in range(8):
        (folder / str(number)).mkdir()
        early.append(interrupted("generate", folder / str(number), seconds=0.1 + number * 0.15))
    sys.stdout.write(json.dumps({"found": found, "again": again, "early": early}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
