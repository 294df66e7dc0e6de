"""Films as the widget and the page keep them: gzipped JSON.

Contract: a Trace goes in, bytes come out, and with them the violations that the film names. Not
known here: what else a film holds.
"""

import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from specviz.record.trace import Trace
from specviz.views.stepper.film import Json, Shooting, collector_paused

# Checking for cycles would take a quarter of the time.
_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_LANES = 2_000  # in one part


def packed_film(trace: Trace, judge: bool) -> tuple[bytes, list[Json] | None]:
    """Return the film as gzipped JSON, and its violations, None if not judged.

    Each round is written as soon as it is made, and compressed while later ones are made.
    """
    # Level 6 saves 13 % and takes three times as long. 31 stands for the gzip format.
    packer = zlib.compressobj(4, wbits=31)
    with collector_paused(), ThreadPoolExecutor(1) as worker:
        shooting = Shooting(trace, judge=judge)
        packed = []
        for part in _round_parts(shooting.rounds()):
            packed.append(worker.submit(packer.compress, part))
        rest = shooting.rest()
        for part in _rest_parts(rest):
            packed.append(worker.submit(packer.compress, part))
        violations = rest["violations"]
        del shooting, rest  # while the collector is paused, or it would search all of them
    return b"".join([each.result() for each in packed] + [packer.flush()]), violations


def _round_parts(rounds: Iterator[Json]) -> Iterator[bytes]:
    start = '{"rounds":['
    for each in rounds:
        yield f"{start}{_JSON.encode(each)}".encode()
        start = ","
    yield b"]" if start == "," else b'{"rounds":[]'


def _rest_parts(rest: Json) -> Iterator[bytes]:
    """Yield the JSON of all other keys in parts, the lanes in many: they are the longest."""
    for name, value in rest.items():
        if name != "lanes":
            yield f',"{name}":{_JSON.encode(value)}'.encode()
            continue
        start = f',"{name}":['
        for first in range(0, len(value), _LANES):
            yield f"{start}{_JSON.encode(value[first : first + _LANES])[1:-1]}".encode()
            start = ","
        yield b"]" if start == "," else b',"lanes":[]'
    yield b"}"
