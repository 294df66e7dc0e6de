"""Hostile records.

Each file is either refused with one sentence, or every reader can read it, in bounded time and
memory.
"""

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
import trace_fuzz
from safetensors.numpy import save as to_safetensors
from tiny_run import TRACE
from trace_fuzz import (
    ALL,
    LOAD_BYTES,
    LOAD_FACTOR,
    READ_BYTES,
    READ_FACTOR,
    RECORDED,
    attempt,
    check_intact,
    check_loading,
    damaged,
    limited,
    readers_for,
    sources,
)

from specviz.record.schema import COLUMNS, PHASES, TraceError
from specviz.record.trace import Trace
from specviz.util.text import harmless, visible

SEEDS = 200
VERIFY = PHASES.index("verify")


def test_what_is_not_damaged_is_read(tmp_path):
    check_intact(tmp_path)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("part", range(4))
def test_damaged_records_are_refused_or_can_be_read(tmp_path, part):
    """The first seeds of `make fuzz`, so each failure has a number: no chance in it."""
    found = set()
    for seed in range(part, SEEDS, 4):
        path = tmp_path / f"{seed}.safetensors"
        with limited():
            path.write_bytes(damaged(Random(seed).randint))
            check_loading(path)
            found.add(attempt(path, readers_for(seed // 4 * 5)))
    assert found == {"refused", "read"}


def test_a_file_cut_anywhere_is_refused(tmp_path):
    whole, path = RECORDED.read_bytes(), tmp_path / "cut"
    for stop in range(0, len(whole), 293):
        path.write_bytes(whole[:stop])
        with pytest.raises(TraceError, match="is not a safetensors file, or a damaged one"):
            Trace.load(path)


@pytest.mark.parametrize("name", ["", "/dev/zero", "pipe", "missing", "missing/run", "nul\x00"])
def test_only_files_are_opened(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    said = r"(is a folder or a device, not a file|cannot be read \(.*\)); check the path"
    with limited(), pytest.raises(TraceError, match=said):
        Trace.load(tmp_path / name)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a\nb\x1b[31m", "x" * 10_000, "\u202e", "rows.\x00"]
)
def test_a_hostile_name_of_a_column_does_nothing_and_is_told_harmlessly(tmp_path, name):
    tensors, header = sources()[0]
    path = tmp_path / "named.safetensors"
    path.write_bytes(
        to_safetensors(tensors | {name: np.zeros(1, np.int32)}, {"specviz": json.dumps(header)})
    )
    with pytest.raises(TraceError, match="columns are unknown") as caught:
        Trace.load(path)
    said = str(caught.value)
    assert harmless(said) == said
    assert "\n" not in said
    assert len(said) < len(str(path)) + 200
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


# A row that begins behind its end had a negative width; without slots one divided by zero; and the
# last verification's feed of a row that its round lacks was a KeyError in the round's picture.
OF_TARGET = np.flatnonzero((TRACE.feeds["phase"] == VERIFY) & (TRACE.feeds["model"] == 0))
FOUND = [("rows.start", 12, -1), ("rounds.slots", 0, -1), ("feeds.row", 7, OF_TARGET[-1])]


@pytest.mark.parametrize(("column", "value", "at"), FOUND)
def test_what_make_fuzz_has_found_can_be_read(tmp_path, column, value, at):
    path = tmp_path / "run.safetensors"
    path.write_bytes(with_changes(put(column, value, at)))
    assert attempt(path, ALL) == "read"


# ---------------------------------------------------------------- the command


def test_the_fuzzer_says_what_came_of_its_inputs(capsys):
    assert trace_fuzz.main(["--inputs", "30", "--seconds", "0", "--first", "0"]) == 0
    said = capsys.readouterr().out
    counts = r"\{'(refused|read)': \d+, '(refused|read)': \d+\}"
    assert re.fullmatch(rf"30 inputs from seed 0 in \d+ s: {counts}\n", said), said


# ---------------------------------------------------------------- memory and time


def with_changes(columns: dict[str, np.ndarray], **meta: object) -> bytes:
    """The hand-written record with other columns and meta data, not checked."""
    tensors, header = sources()[0]
    return to_safetensors(
        tensors | columns, {"specviz": json.dumps({**header, "meta": header["meta"] | meta})}
    )


def put(name: str, value: int, at: int = -1) -> dict[str, np.ndarray]:
    values = sources()[0][0][name].copy()
    values.reshape(-1)[at] = value
    return {name: values}


def many(table: str, count: int, **columns: int) -> dict[str, np.ndarray]:
    """`count` copies of a table's last entry, with these values."""
    tensors = sources()[0][0]
    names = [name for name in tensors if name.startswith(f"{table}.")]
    made = {name: np.repeat(tensors[name][-1:], count, axis=0) for name in names}
    return made | {
        f"{table}.{name}": np.full(count, value, made[f"{table}.{name}"].dtype)
        for name, value in columns.items()
    }


def lying(entry: dict[str, object]) -> bytes:
    content = with_changes({})
    size = struct.unpack("<Q", content[:8])[0]
    told = json.loads(content[8 : 8 + size])
    told["rows.length"] |= entry
    text = json.dumps(told).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def empty_rows(width: int) -> dict[str, np.ndarray]:
    """No rounds at all, and columns of no entries that claim to be wide."""
    tensors = {
        name: values[:0]
        for name, values in sources()[0][0].items()
        if not name.startswith("requests.")
    }
    sizes = {"N": 0, "K": width, "K+1": width + 1, "k": 1, "j": 1}
    for name, column in COLUMNS["rows"].items():
        if {"K", "K+1"} & set(column.shape):
            shape = [sizes[letter] for letter in column.shape]
            tensors[f"rows.{name}"] = np.zeros(shape, column.dtype)
    return tensors


HUGE = 2**31 - 1
LONG_REQUESTS = {
    "requests.budget": np.zeros(10_003, np.int32),
    "requests.prompt_tokens": np.zeros(20_003, np.int32),
    "requests.prompt_offsets": np.append(np.arange(10_003), 20_003),
    "requests.output_tokens": np.zeros(0, np.int32),
    "requests.output_offsets": np.zeros(10_004, np.int64),
}
BOMBS = {
    "a shape that lies": lambda: lying({"shape": [2**40]}),
    "offsets that lie": lambda: lying({"data_offsets": [0, 2**40]}),
    "a header without an end": lambda: struct.pack("<Q", 2**62) + b"{}",
    "wide columns of nothing": lambda: with_changes(empty_rows(2**40), num_draft_tokens=2**40),
    "a slot far away": lambda: with_changes(put("rounds.slots", HUGE)),
    "as many slots as are believed": lambda: with_changes(put("rounds.slots", 2**17)),
    "a row far away": lambda: with_changes(put("feeds.row", HUGE)),
    "as many cells as are believed": lambda: with_changes(
        put("rounds.slots", 2**17) | put("moves.to_row", 15)
    ),
    "an index far away": lambda: with_changes(put("feeds.index", HUGE)),
    "many requests and a long one": lambda: with_changes(
        {name: values[:0] for name, values in sources()[0][0].items()} | LONG_REQUESTS
    ),
    "many moves at once": lambda: with_changes(
        many("moves", 5000, length=2**16, from_slot=0, to_slot=1)
    ),
    "many moves of nothing": lambda: with_changes(many("moves", 5000, length=0)),
    "many queries that see far": lambda: with_changes(
        many("feeds", 300, visible_start=0, visible_stop=2**15)
    ),
    "many queries, many holes": lambda: with_changes(
        many("feeds", 100, visible_start=0, visible_stop=2**15)
        | many("holes", 5000, feed=99, start=1, stop=2**15)
    ),
    "nesting": lambda: to_safetensors({}, {"specviz": "[" * 10**6}),
    "nesting that JSON can read": lambda: with_changes(
        {}, versions=json.loads("[" * 400 + "]" * 400)
    ),
    "much of nothing in the header": lambda: with_changes({}, more=[[] for _ in range(10**5)]),
    "one long text": lambda: with_changes({}, token_texts={"10": "  a" * 10**5}),
    "a number without an end": lambda: to_safetensors(
        {}, {"specviz": '{"format_version": 1' + "0" * 10**6 + "}"}
    ),
    "a large record": lambda: RECORDED.read_bytes(),
}
MEASURE = """
import resource, sys, time, tracemalloc
from pathlib import Path
from trace_fuzz import READERS, attempt
from specviz.record.trace import Trace, TraceError
attempt(Path(sys.argv[1]), READERS)  # what is imported and kept on first use
for path in map(Path, sys.argv[1:]):
    peaks, begun = [], time.process_time()
    for readers in ("load", "all"):
        tracemalloc.start()
        try:
            Trace.load(path) if readers == "load" else attempt(path, READERS)
        except TraceError:
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    cpu_s = round(time.process_time() - begun, 2)
    print(path.name, path.stat().st_size, *peaks, cpu_s, sep="\\t", flush=True)
# getrusage would include the parent's memory, which a fork shares for a moment.
status = Path("/proc/self/status")
if status.exists():
    lines = status.read_text().splitlines()
    most = int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024
else:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print("resident", 0, 0, most, 0, sep="\\t")
"""


@pytest.mark.slow
def test_memory_grows_with_the_file(tmp_path):
    """Memory does not grow with what the file claims, and a small file takes little time.

    Both are measured in a separate process.
    """
    paths = [tmp_path / f"{name}.safetensors" for name in ("a large record", *BOMBS)]
    for path in paths:
        path.write_bytes(BOMBS[path.stem]())
    folder = Path(__file__).parent
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, paths)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=3600,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(folder.parent)])},
    )
    assert run.returncode == 0, run.stderr
    *lines, last = [line.split("\t") for line in run.stdout.splitlines()]
    assert len(lines) == len(paths)
    for name, *figures in lines:
        size, load, read = map(int, figures[:3])
        assert load <= LOAD_FACTOR * size + LOAD_BYTES, (name, size, load)
        assert read <= READ_FACTOR * size + READ_BYTES, (name, size, read)
        assert float(figures[3]) < 60, (name, figures)
    assert int(last[3]) < 3 * READ_BYTES, last  # the libraries take some 200 MB of it


def test_one_long_text_is_shown_in_linear_time():
    text = "a  b \x00" * 50_000
    assert len(visible(text)) > len(text)
