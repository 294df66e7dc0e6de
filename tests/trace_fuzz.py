"""Damaged and hostile records for the fuzz tests and `make fuzz`.

`damaged(pick)` returns a file with one to four faults in bytes, header, meta data or columns.
`pick(low, high)` chooses a whole number, both ends included. `attempt` loads the file and gives the
record to every reader; only ValueError may be raised. As a command, from the folder tests/:

    python trace_fuzz.py --inputs 100000 --seconds 600  # seeds, until both limits are reached
"""

import argparse
import json
import os
import signal
import struct
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors
from tiny_run import TRACE

import specviz as sv
from specviz import metrics
from specviz.checks.scores import recorded_scores
from specviz.metrics import waste
from specviz.record.replay import Replay
from specviz.record.schema import TraceError
from specviz.record.trace import Trace
from specviz.views import charts
from specviz.views.stepper import export
from specviz.views.stepper.widget import StepThrough

Pick = Callable[[int, int], int]
# EXSPEC with a pool, on the embedded pair.
RECORDED = Path(__file__).parent / "data" / "trace-v1.safetensors"
# CPU seconds that one input may take. By the clock, it may take 15 times as many on a busy machine.
SECONDS = 20
# What loading a file and reading it in every way may allocate: a multiple of its size, plus a
# number of bytes. docs/reliability.md states these limits.
LOAD_FACTOR, LOAD_BYTES = 64, 2**20
READ_FACTOR, READ_BYTES = 1000, 2**28
NUMBERS = (
    0, 1, -1, 2, 3, 5, 7, 100, 255, 256, 2**16, 2**20, 2**31 - 1, -(2**31), 2**31, 2**32, 2**53,
    2**62, -(2**63),
)  # fmt: skip
VALUES = (
    None, True, False, -1, 0, 2**31, 2**63, 10**40, 1.5, 1e308, "", "x", "</script><script>",
    "\ud800", "\u2028\x00\x1b[31m", "../../etc/passwd",
    [], [[]], {}, {"target": 1}, {"target": -1, "draft": 2**50}, ["x"], [1], [2**70],
    {"1": "a"}, {"x": 1}, "a" * 5000, [-1, 3, 3],
)  # fmt: skip
DTYPES = (np.uint8, np.int32, np.int64, np.float32, np.float64, np.int8, np.bool_, np.uint64)
NAMES = (
    "../../x", "/etc/passwd", "rows.extra", "rows", "", "rows.", ".rows", "rows.length.x", "C:\\x",
    "\x00", "\ud7ff", "__metadata__ ",
)  # fmt: skip


@cache
def sources() -> tuple[tuple[dict[str, np.ndarray], dict[str, Any]], ...]:
    """Tensors and header of each record that is damaged."""
    with tempfile.TemporaryDirectory() as folder:
        TRACE.save(Path(folder) / "tiny")
        found = []
        for file in (Path(folder) / "tiny", RECORDED):
            with safe_open(file, "numpy") as opened:
                header = json.loads(opened.metadata()["specviz"])
            found.append((from_safetensors(file.read_bytes()), header))
        return tuple(found)


def damaged(pick: Pick) -> bytes:
    """A file with faults."""
    tensors, header = sources()[pick(0, 1)]
    tensors, header = dict(tensors), json.loads(json.dumps(header))
    kinds = [pick(0, 15) for _ in range(max(1, pick(-2, 4)))]
    for kind in kinds:
        if kind < 11:
            change_values(tensors, pick)
        elif kind == 11:
            change_column(tensors, pick)
        elif kind < 14:
            change_meta(header, pick)
    content = to_safetensors(tensors, {"specviz": dumped(header, pick)})
    if 14 in kinds:
        content = change_header(content, pick)
    return change_bytes(content, pick) if 15 in kinds else content


def dumped(header: dict[str, Any], pick: Pick) -> str:
    """Return the trace's header as JSON; now and then, return something that is hardly JSON."""
    text = json.dumps(header)
    odd = (
        "[" * 20_000,
        '{"format_version": 1, "meta": ' + '{"a":' * 900 + "1" + "}" * 900 + "}",
        text[: len(text) // 2],
        "NaN",
        '"x"',
        "",
        text.replace('"seed": ', '"seed": 1' + "0" * 5000 + ', "was": ', 1),
        text.replace('"seed": ', '"seed": 1e999, "was": ', 1),
        text.replace("{", '{"meta": 1, ', 1),
        text[:-1] + ', "meta": {}}',
        text.replace('"versions": {', '"versions": {"deep": ' + "[" * 300 + "]" * 300 + ", ", 1),
    )
    number = pick(-60 * len(odd), len(odd) - 1)
    return odd[number] if number >= 0 else text


def change_values(tensors: dict[str, np.ndarray], pick: Pick):
    """Change a few numbers of one column.

    A new number is next to the old one, that of another entry, far off, or a non-finite float.
    """
    name = chosen(sorted(tensors), pick)
    values = tensors[name].copy()
    if not values.size:
        return
    flat = values.reshape(-1)
    for _ in range(pick(1, 3)):
        at, how = pick(0, flat.size - 1), max(0, pick(-6, 4))
        old = float(flat[at]) if values.dtype.kind == "f" else int(flat[at])
        new = (
            old + pick(-2, 2),
            flat[pick(0, flat.size - 1)],
            chosen(NUMBERS, pick),
            pick(0, 40),
            old * 2,
        )[how]
        if values.dtype.kind == "b":
            flat[at] = not flat[at]
        elif values.dtype.kind == "f":
            flat[at] = (np.nan, np.inf, -np.inf, np.float32(3e38), -0.0)[how]
        else:
            info = np.iinfo(values.dtype)
            flat[at : at + (pick(1, 4) if how == 1 else 1)] = min(max(int(new), info.min), info.max)
    tensors[name] = values


def change_column(tensors: dict[str, np.ndarray], pick: Pick):
    """Give a column another length, order, dtype or name.

    Or drop, double or reorder entries in all columns of a table.
    """
    name, how = chosen(sorted(tensors), pick), pick(0, 7)
    values = tensors[name]
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[chosen(NAMES, pick)] = values
    elif how == 2:
        tensors[name] = values[: pick(0, len(values))].copy()
    elif how == 3:
        with np.errstate(invalid="ignore"):  # NaN as a whole number
            tensors[name] = values.astype(chosen(DTYPES, pick))
    elif how == 4:
        tensors[name] = chosen(
            (values[None], values.ravel(), values[..., None], np.zeros((0, 3, 2, 2), values.dtype)),
            pick,
        )
    else:
        table = name.partition(".")[0]
        size = max(len(tensors[other]) for other in tensors if other.startswith(f"{table}."))
        entries = [pick(0, max(size - 1, 0)) for _ in range(pick(0, 3))]
        order = [*range(size), *entries]
        if how == 5:
            order = [at for at in range(size) if at not in entries]
        if how == 7:
            order.reverse()
        for other, column in tensors.items():
            if other.startswith(f"{table}.") and len(column) == size > 0:
                tensors[other] = column[np.array(order, int)]


def change_meta(header: dict[str, Any], pick: Pick):
    """Replace or drop one value of the header, at any depth, or add others to it."""
    if not header:
        return  # another damage before this one has emptied it
    place = header
    while isinstance(place, dict | list) and place:
        key = chosen(sorted(place) if isinstance(place, dict) else range(len(place)), pick)
        if pick(0, 2) == 0 or not isinstance(place[key], dict | list) or not place[key]:
            break
        place = place[key]
    if pick(0, 4) == 0:
        del place[key]
    else:
        place[key] = deepcopy(chosen(VALUES, pick))  # a later fault may put something into it


def change_header(content: bytes, pick: Pick) -> bytes:
    """Damage the header of safetensors.

    The faults are wrong shapes and offsets, huge sizes, repeated names, deep nesting and other
    encodings.
    """
    size = struct.unpack("<Q", content[:8])[0]
    text, body, how = content[8 : 8 + size], content[8 + size :], pick(0, 7)
    if how == 0:
        sizes = 0, 1, size - 1, size + 1, len(content), 2**31, 2**40, 2**63, 2**64 - 1
        return struct.pack("<Q", chosen(sizes, pick)) + text + body
    if how == 1:
        text = b"[" * 50_000
    elif how == 2:
        twice = b'{"rows.length":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},"'
        text = text.replace(b'{"', twice, 1)
    elif how == 3:
        text = text.decode(errors="replace").encode("utf-16")
    else:
        entries = json.loads(text)
        name = chosen([key for key in entries if key != "__metadata__"], pick)
        key = ("shape", "dtype", "data_offsets", "shape")[how - 4]
        numbers = [chosen(NUMBERS, pick) for _ in range(pick(0, 4))]
        dtype = chosen(("F64", "BF16", "I8", "U64", "BOOL", "F8_E4M3", "X", 3), pick)
        entries[name][key] = dtype if key == "dtype" else numbers
        text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + body


def change_bytes(content: bytes, pick: Pick) -> bytes:
    """Single bytes, a piece left out, cut off, doubled or zeroed."""
    flipped = bytearray(content)
    for _ in range(pick(1, 4)):
        flipped[pick(0, len(flipped) - 1)] = pick(0, 255)
    a, b = sorted((pick(0, len(flipped)), pick(0, len(flipped))))
    b = min(b, a + 64)
    pieces = (
        flipped,
        flipped[:a],
        flipped[:a] + flipped[b:],
        flipped[:b] + flipped[a:],
        flipped[:a] + bytes(b - a) + flipped[b:],
    )
    return bytes(pieces[pick(0, len(pieces) - 1)])


def chosen(values: Any, pick: Pick) -> Any:
    return values[pick(0, len(values) - 1)]


def attempt(path: Path, readers: Sequence[Callable[[Trace], None]] = ()) -> str:
    """Return "refused" if the file was refused, "read" if it was loaded and all readers read it.

    Any error other than a ValueError of one sentence is raised to the caller.
    """
    try:
        trace = Trace.load(path)
    except TraceError as error:
        said = str(error)
        assert said.startswith(f"{path}: "), said
        assert "; " in said, said
        assert "\n" not in said, said
        assert len(said) < 600, said
        return "refused"
    for read in (walk, *readers):
        try:
            read(trace)
        except ValueError as error:
            ours = ("trace", "run", "the run", "round=", "there")
            if not str(error).startswith(ours):  # said by a library, then
                raise
    return "read"


def check_loading(path: Path) -> None:
    """Loading a file, which may also be refused, takes no more memory than the limits say."""
    tracemalloc.start()
    try:
        Trace.load(path)
    except TraceError:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    size = path.stat().st_size
    assert most <= LOAD_FACTOR * size + LOAD_BYTES, f"loading {size} bytes takes {most}"


def walk(trace: Trace):
    frames = list(Replay(trace).frames())
    assert len(frames) == 5 * trace.num_rounds
    for request in range(trace.num_requests):
        trace.prompt(request), trace.output(request), trace.origins(request)


def export_page(trace: Trace):
    shown = StepThrough(trace)
    page = export.page("run", [shown.film], {"step": 0, "row": 0, "theme": "auto"})
    assert page.lower().count("</script>") == 3  # settings, film, the page's own


def judge(trace: Trace):
    found = sv.check_invariants(trace)
    str(found), found.frame(), found.first_per_request()


def tabulate(trace: Trace):
    for name in ("rounds", "rows", "stages", "stage_totals", "acceptance", "requests", "summary"):
        getattr(metrics, name)(trace)
    metrics.smallest_gap(trace), waste(trace), recorded_scores(trace)


def save_again(trace: Trace):
    with tempfile.TemporaryDirectory() as folder:
        trace.save(Path(folder) / "again")


def draw(trace: Trace):
    charts.stage_bars({"run": trace})
    for chart in (charts.acceptance_map, charts.acceptance_by_position, charts.pick_ragged_round):
        chart(trace)


READERS = (judge, tabulate, save_again, export_page)
ALL = (*READERS, draw)  # charts take more time than all others together


def check_intact(folder: Path):
    """As a control, check that files without faults are loaded, and that no reader raises.

    This also loads all modules that readers import.
    """
    for tensors, header in sources():
        path = folder / "intact.safetensors"
        path.write_bytes(to_safetensors(tensors, {"specviz": json.dumps(header)}))
        assert attempt(path, ALL) == "read"


def readers_for(number: int) -> tuple[Callable[[Trace], None], ...]:
    """Every record is loaded and replayed; the slower readers take turns."""
    return ALL if number % 50 == 0 else READERS if number % 10 == 0 else ()


# ---------------------------------------------------------------- as a command


@contextmanager
def limited() -> Iterator[None]:
    """An input that hangs ends as an error: by the CPU's clock, or much later by the wall's."""

    def ring(*_: object):
        raise TimeoutError(
            f"an input took more than {SECONDS} s of a CPU, or {15 * SECONDS} s by the clock"
        )

    before = [signal.signal(kind, ring) for kind in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(15 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for kind, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(kind, handler)


def run_seeds(first: int, inputs: int, seconds: float, folder: Path) -> Counter[str]:
    """Run seeds from `first` on, until both limits are reached, or until Ctrl-C.

    Return what became of the inputs. Write the seed of a failing one to stderr and raise its error.
    """
    became: Counter[str] = Counter()
    begun, seed, path = time.monotonic(), first, folder / "input.safetensors"
    while seed - first < inputs or time.monotonic() - begun < seconds:
        try:
            with limited():
                path.write_bytes(damaged(Random(seed).randint))
                if seed % 10 == 5:
                    check_loading(path)
                became[attempt(path, readers_for(seed))] += 1
        except KeyboardInterrupt:
            break
        except BaseException:
            sys.stderr.write(f"seed {seed}\n")
            raise
        seed += 1
    return became


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=600)
    said = "first seed; without it another one each time"
    parser.add_argument("--first", type=int, default=int.from_bytes(os.urandom(6)), help=said)
    options = parser.parse_args(arguments)
    warnings.simplefilter("error")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        check_intact(Path(folder))
        became = run_seeds(options.first, options.inputs, options.seconds, Path(folder))
    took = time.monotonic() - begun
    counts = f"{became.total():,} inputs from seed {options.first} in {took:.0f} s"
    sys.stdout.write(f"{counts}: {dict(became)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
