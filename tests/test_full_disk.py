"""A disk that becomes full while a file is written.

The error is one sentence with path and remedy. The earlier file stays intact, and no other file is
left. The tests fill a real file system of 4 MB, if this process may mount one; a limit on the size
of files works anywhere.
"""

import errno
import json
import os
import re
import resource
import shutil
import sys
from pathlib import Path

import pytest
from conftest import run_program
from full_disk import KINDS

from specviz.bench.running import Log
from specviz.cli import exit
from specviz.cli.main import main as cli
from specviz.util.files import WriteError, write, write_folder

HERE = Path(__file__).parent
CHOOSE = "choose a file in a folder that exists, with room left"
RESUME = "make room; measurements so far are kept there, and the same command goes on"
SENTENCES = {name: (rf"\S+/{name}/{file}", CHOOSE) for name, (file, _) in KINDS.items()}
SENTENCES |= {
    "bench": (r"\S+/bench/bench\.jsonl\.partial", RESUME),
    "command": (r"1 specviz generate: \S+/demo\.safetensors", CHOOSE),
}


def reports(command: list[str]) -> dict[str, dict[str, object]]:
    done = run_program(command)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(found: dict[str, dict[str, object]], why: str):
    assert list(found) == list(KINDS)
    for name, report in found.items():
        begins, remedy = SENTENCES[name]
        assert re.fullmatch(
            rf"{begins}: cannot be written \({why}( \(os error \d+\))?\); {remedy}",
            str(report["said"]),
        ), report["said"]
        assert report["whole"], name
        assert report["extra"] == (["bench.jsonl.partial"] if name == "bench" else []), name
        assert not any("partial" in file for file in report["later"]), name


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE as Linux has it")
def test_files_that_may_not_grow(tmp_path):
    check(reports([sys.executable, "full_disk.py", str(tmp_path), "2048"]), "File too large")


@pytest.mark.slow
def test_a_disk_that_is_full(tmp_path):
    """It is mounted for this one process and is gone with it."""
    inside = (
        f"mount -t tmpfs -o size=4m tmpfs {tmp_path} || exit 77; "
        f"{sys.executable} full_disk.py {tmp_path}"
    )
    if shutil.which("unshare") is None or run_program(["unshare", "--mount", "true"]).returncode:
        pytest.skip("this process may not mount a file system of its own")
    check(reports(["unshare", "--mount", "sh", "-c", inside]), "No space left on device")


def test_what_is_written_to_a_device_does_not_take_its_place(tmp_path):
    """Nor that of a folder; a link stays a link, and what it leads to is replaced."""
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/full"), Path("/dev/null"), tmp_path / "pipe", tmp_path):
        with pytest.raises(
            WriteError,
            match=r": cannot be written \(it is a folder or a device, not a file\); choose a file",
        ):
            write(path, b"new")
    assert Path("/dev/full").is_char_device()
    (tmp_path / "kept").write_bytes(b"old")
    (tmp_path / "link").symlink_to("kept")
    write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept").read_bytes() == b"new"


def test_a_log_on_a_full_disk(tmp_path):
    """Its device takes half a line: rows before it are read again, the half is not."""
    path = tmp_path / "bench.jsonl.partial"
    log = Log(path, {"a": 1})
    log.add({"row": 1})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limits[1]))
    try:
        with pytest.raises(WriteError, match=rf"^{path}: cannot be written \(.*\); {RESUME}$"):
            log.add({"row": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before + b'{"row'
    assert Log(path, {"a": 1}).measurements == [{"row": 1}]


def test_a_folder_between_its_two_names_is_not_lost(tmp_path):
    """A writer can be killed after it moves the old folder away and before it names the new one.

    The next writer then starts from the old folder.
    """
    (tmp_path / "target.old").mkdir()
    (tmp_path / "target.old" / "weights").write_text("old")

    def fill(partial: Path):
        assert (tmp_path / "target" / "weights").read_text() == "old"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(WriteError, match=r"target: cannot be written \(No space left on device\)"):
        write_folder(tmp_path / "target", fill)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("output", ["full", "closed"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_that_takes_nothing(output, tmp_path):
    """A full disk behind `>`, or a `| head` that has read enough, ends the command.

    It prints one sentence, returns status 1, and prints nothing more when Python ends.
    """
    record = f"{HERE}/data/trace-v1.safetensors"
    command = f"{sys.executable} -m specviz.cli.main replay {record} -o {tmp_path}/x.html"
    command += " > /dev/full" if output == "full" else " | true; exit ${PIPESTATUS[0]}"
    # With PYTHONUNBUFFERED, a failure shows at once.
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = run_program(["bash", "-c", command], env=plain)
    why = "No space left on device" if output == "full" else "Broken pipe"
    said = f"specviz replay: standard output: cannot be written ({why}); {exit.READ_ALL}\n"
    assert (done.stderr, done.returncode) == (said, 1)


def test_the_exit_status_tells_a_full_disk_from_a_wrong_argument(tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"")
    page = tmp_path / "file" / "x.html"
    assert cli(["replay", str(HERE / "data/trace-v1.safetensors"), "-o", str(page)]) == 1
    assert f"{page}: cannot be written (Not a directory); choose a file" in capsys.readouterr().err
    assert cli(["replay", "/nowhere"]) == 2
