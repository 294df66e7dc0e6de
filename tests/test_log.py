"""Logs: runs written to a `TraceWriter` call by call, and the file, its schema and its damage."""

import copy
import json
import os
import random
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from conftest import debug_page, decoded, make_pair
from jsonschema import Draft202012Validator
from masking_decoder import logged, writer
from mutated_runs import record
from relog import relog

import specviz as sv
from specviz.cli.main import main as cli
from specviz.generation.assemble import model_name
from specviz.record.log import ENTRIES
from specviz.record.schema import MISSING
from specviz.record.trace import Trace

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "log.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)


# What a log does not hold is left out of the comparison: the pool, decisions and scores.
NOT_IN_A_LOG = {("rounds", "decision"), ("rounds", "capacity"), ("rows", "scores")}
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "eqspec": ("eqspec", {}),
    "exspec": ("exspec", {}),
    "inplace": ("inplace", {}),
    "masking": ("masking", {}),
    "repadding": ("repadding", {}),
    "column": (sv.strategy("masking", positions="column"), {}),
    "trees": ("inplace", {"drafter": "tree"}),
    "trees, holes": ("masking", {"drafter": "tree"}),
    "trees, realigned": ("eqspec", {"drafter": "tree"}),
    "selected": ("eqspec", {"selector": "tetris"}),
    "mask": (sv.strategy("eqspec", break_invariant="mask", rows=[1], from_round=1), {}),
    "bonus": (sv.strategy("inplace", break_invariant="bonus", rows=[1], from_round=1), {}),
    "kv": (sv.strategy("eqspec", break_invariant="kv", rows=[1], from_round=1), {}),
    "states": ("exspec", {}),
}


def recorded(name: str) -> Trace:
    if name == "states":
        return record("states")
    strategy, options = RUNS[name]
    return decoded(strategy, **options).trace


def differing(one: Trace, other: Trace) -> list[str]:
    """The columns in which two records differ."""
    found = []
    for name, table in one.tables.items():
        for column, values in table.items():
            if name == "pool" or (name, column) in NOT_IN_A_LOG:
                continue
            is_float = values.dtype == np.float32
            if not np.array_equal(values, other.tables[name][column], equal_nan=is_float):
                found.append(f"{name}.{column}")
    return found


@pytest.mark.sweep(16)
@pytest.mark.parametrize("layout", [True, False])
@pytest.mark.parametrize("name", RUNS)
def test_a_log_is_the_record_that_it_was_written_from(name, layout, tmp_path):
    """Also from its file. Without a layout, nothing says where a row would go on in the end."""
    trace = recorded(name)
    log = relog(trace, layout=layout)
    again = log.trace()
    if not layout and name == "kv":  # its first token moves with it, so `starts` alone would tell
        return
    assert set(differing(trace, again)) <= (set() if layout else {"rows.pending_after"})
    for entry in np.flatnonzero(trace.rows["pending_after"] != again.rows["pending_after"]):
        assert trace.rows["request"][entry] not in trace.rows["request"][entry + 1 :]
    assert again.meta["missing"] == []
    assert list(sv.check_invariants(again)) == list(sv.check_invariants(trace))
    log.save(tmp_path / "log.jsonl")
    # Times are written to nanoseconds, so that some float32 differ in their last digit.
    read_again = sv.read_log(tmp_path / "log.jsonl")
    assert all(column.endswith("_ms") for column in differing(again, read_again))


@pytest.mark.slow
def test_deep_check_runs_a_log_again():
    pair = make_pair("llama")
    names = {"target": model_name(pair.target), "draft": model_name(pair.draft)}
    trace = relog(recorded("eqspec"), dtype="float32", **names).trace()
    assert not sv.check_invariants(trace, deep=True, pair=pair)


@pytest.mark.parametrize("slip", [0, 1, 2])
def test_a_slip_in_a_decoder_shows_in_its_log(slip):
    found = sv.check_invariants(logged(slip).trace())
    assert {each.rule for each in found} == ({"positions", "mask", "kv"} if slip else set())


def test_a_log_of_states_that_kept_a_rejected_draft():
    """Row 1 goes on from the states after its second draft, though both were rejected."""
    log = full()
    row = {"rows": [1], "requests": [1]}
    log.forward("target", **row, tokens=[[25]], indices=[[2]], states=[[1, 3]])
    log.round(sv.RoundEnd(**row, drafts=[[]], accepted=[0], emitted=[[8]]))
    (found,) = (each for each in sv.check_invariants(log.trace()) if each.rule == "state")
    assert (found.row, found.phase, found.model) == (1, "verify", "target")
    assert "after index 1; it went on from those after index 3, with 2 rejected" in found.message


def full() -> sv.TraceWriter:
    """A log with an entry of every name: two rounds of two rows, the second one a tree."""
    log = sv.TraceWriter(
        [[5, 6, 7], [8, 9]],
        vocabulary_size=100,
        num_draft_tokens=2,
        budget=[8, 9],
        eos_token_ids=[2],
        decoder="full",
        sampling={"temperature": 0.5},
        tokenizer={5: "five"},
        about={
            "draft": "small",
            "batch_size": 2,
            "kv_bytes_per_slot": {"target": 64, "draft": 16},
        },
        missing=["times"],
    )
    both = {"rows": [0, 1], "requests": [0, 1]}
    places = {"positions": [[2, 3, 4], [1, 2, 3]], "slots": [[2, 3, 4]]}
    prompts = {"tokens": [[5, 6], [0, 8]], "indices": [[0, 1], [-1, 0]]}
    log.forward("target", **both, **prompts, states=[[0, -1], [1, -1]])
    log.forward("draft", **both, tokens=[[7], [9]], indices=[[2], [1]], phase="draft")
    log.forward(
        "target",
        **both,
        tokens=[[7, 11, 12], [9, 21, 22]],
        indices=[[2, 3, 4], [1, 2, 3]],
        visible=np.tril(np.ones((2, 3, 5), bool), 2),
        nodes=[[0, 1, 2], [0, 1, 2]],
        states=[[0, 1], [1, 0]],
        **places,
    )
    end = {"discarded": [0, 0], "verified": [2, 2], "starts": [0, 1], "pending": [2, 2]}
    first = sv.RoundEnd(
        **both,
        drafts=[[11, 12], [21, 22]],
        accepted=[2, 0],
        emitted=[[11, 12, 13], [25]],
        finished=[False, False],
        target_top=(np.full((2, 3, 2), 7), np.log(np.full((2, 3, 2), 0.25))),
        draft_logprobs=[[-0.5, None], [-1.0, "-inf"]],
        slots=5,
        ms={"verify": 1.25},
        starts_after=[0, 1],
        pending_after=[5, 3],
        **end,
    )
    log.round(first)
    log.move("target", from_row=1, from_slot=1, to_row=1, to_slot=3, length=2)
    log.move(
        "draft", from_row=[0, 1], from_slot=[0, 0], to_row=[0, 1], to_slot=[1, 1], length=[1, 1]
    )
    log.add_request([30, 31])
    tree = {"parents": [[-1, -1]], "path": [[1]], "choices": [[41, 5, 6]]}
    own = {"rows": [0], "requests": [0]}
    log.round(sv.RoundEnd(**own, drafts=[[40, 41]], accepted=[1], emitted=[[41, 5]], **tree))
    return log


@cache
def lines_of_full() -> tuple[str, ...]:
    with TemporaryDirectory() as folder:
        full().save(Path(folder) / "log.jsonl")
        return tuple((Path(folder) / "log.jsonl").read_text().splitlines())


def read(tmp_path: Path, lines: Any) -> sv.Trace:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return sv.read_log(path)


def same(one: sv.Trace, other: sv.Trace) -> bool:
    return one.meta == other.meta and not differing(one, other)


@pytest.mark.parametrize("log", [logged, full])
def test_a_log_is_what_its_schema_says_and_comes_back(log, tmp_path):
    path = tmp_path / "log.jsonl"
    written = log()
    written.save(path)
    for line in path.read_text().splitlines():
        VALIDATOR.validate(json.loads(line))
    assert same(sv.read_log(path), written.trace())


def test_schema_is_a_schema_and_knows_the_names_of_the_reader():
    Draft202012Validator.check_schema(SCHEMA)
    kinds = [each["$ref"].rpartition("/")[2] for each in SCHEMA["oneOf"]]
    assert set(kinds) == set(ENTRIES)
    for kind in kinds:
        entry = SCHEMA["$defs"][kind]
        assert entry["properties"].keys() == ENTRIES[kind].keys() | {"kind"}
        needed = {name for name, is_needed in ENTRIES[kind].items() if is_needed}
        assert set(entry["required"]) == {"kind", *needed}
    names = SCHEMA["$defs"]["header"]["properties"]["missing"]["items"]["enum"]
    assert names == list(MISSING)


WRONG = ["x", None, -2, 0.5, True, {}, [], [[]], [None], 2**31, [0.5], ["x"], [[True]], [-3]]


def mutations() -> list[tuple[int, str, Any]]:
    """(line, entry, wrong value) over all lines and entries of `full`."""
    found = []
    for number, text in enumerate(lines_of_full()):
        for name in [*json.loads(text), "unknown"]:
            found += [(number, name, value) for value in WRONG]
            found.append((number, name, ...))
    return found


@pytest.mark.slow
def test_reader_refuses_what_the_schema_refuses(tmp_path):
    refused = 0
    for number, name, value in mutations():
        line = json.loads(lines_of_full()[number])
        if value is ...:
            line.pop(name, None)
        else:
            line[name] = copy.deepcopy(value)
        # The reader takes a mask in place of ranges, as the call does.
        if VALIDATOR.is_valid(line) or (name, value) in [("visible", [[True]]), ("missing", {})]:
            continue
        refused += 1
        lines = list(lines_of_full())
        lines[number] = json.dumps(line)
        with pytest.raises(sv.TraceError, match=rf"log\.jsonl: line {number + 1}[: ]") as raised:
            read(tmp_path, lines)
        message = str(raised.value)
        assert "\n" not in message
        assert ";" in message, message
    assert refused > 1000


GOOD = [
    '{"kind": "request", "prompt": [0]}',
    '{"kind": "texts", "texts": {}}',
    '{"kind": "forward", "model": "draft", "rows": [], "requests": [], '
    '"tokens": [], "indices": []}',
    '{"kind": "round", "rows": [1, 0], "requests": [0, 1], "drafts": [[], [1]], '
    '"accepted": [0, 0], "emitted": [[], [7]], "draft_logprobs": [[], [null]]}',
]


@pytest.mark.parametrize("line", GOOD)
def test_reader_takes_what_the_schema_takes(line, tmp_path):
    VALIDATOR.validate(json.loads(line))
    read(tmp_path, [*lines_of_full(), line])


DAMAGE = [
    ("", "the file is empty"),
    ("{}\n", r"line 1 must be a JSON object with a kind, got '\{\}'"),
    ('{"kind": "round"}\n', "line 1: kind must be 'header', got 'round'"),
    ("\x00\x01\n", "line 1 must be a JSON object"),
    ("[" * 10_000 + "\n", "line 1 must be a JSON object"),
    ('{"kind": "header", "version": 2, "vocabulary_size": 5, "num_draft_tokens": 1}\n',
     "line 1: version must be 1, got 2"),
    ('{"kind": "header", "version": 1, "vocabulary_size": 5, "num_draft_tokens": 1}\n',
     "the log has no complete round"),
    ("contradicting", r"line \d+: requests must hold ints from 0 to 1"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "problem"), DAMAGE)
def test_damaged_logs_are_refused_in_one_sentence(content, problem, tmp_path):
    path = tmp_path / "damaged.jsonl"
    if content == "contradicting":  # each of its lines is right on its own
        content = "\n".join(lines_of_full()).replace('"requests":[0,1]', '"requests":[0,7]')
    path.write_text(content)
    with pytest.raises(sv.TraceError, match=problem) as raised:
        sv.read_log(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_crash_loses_nothing_that_was_logged(tmp_path):
    path = tmp_path / "log.jsonl"
    log = writer(path=path)
    both = {"rows": [0, 1], "requests": [0, 1]}
    log.round(sv.RoundEnd(**both, drafts=[[1], [2]], accepted=[0, 1], emitted=[[3], [2, 4]]))
    assert same(sv.read_log(path), log.trace())
    log.forward("target", **both, tokens=[[3], [4]], indices=[[5], [3]])
    whole = sv.read_log(path)
    assert whole.num_rounds == 1
    # The process is killed while it writes the next line, at any byte of it.
    content = path.read_bytes()
    log.round(sv.RoundEnd(**both, drafts=[[1], [2]], accepted=[0, 1], emitted=[[3], [2, 4]]))
    last = path.read_bytes().removeprefix(content)
    for length in range(len(last) - 1):
        path.write_bytes(content + last[:length])
        assert same(sv.read_log(path), whole)
    path.write_bytes(content + last)
    assert sv.read_log(path).num_rounds == 2


def test_a_path_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path, tmp_path / "pipe.jsonl", tmp_path / "none.jsonl", "a\0b.jsonl"):
        with pytest.raises(sv.TraceError, match=r"cannot be read .* choose a log"):
            sv.read_log(path)


@pytest.mark.slow
def test_any_damage_is_refused_or_read(tmp_path):
    """Bytes are changed, cut out and doubled at random, from a fixed seed."""
    path = tmp_path / "damaged.jsonl"
    content = "".join(f"{line}\n" for line in lines_of_full()).encode()
    refusals = []
    read = 0
    for seed in range(300):
        damage = random.Random(seed)
        damaged = bytearray(content)
        for _ in range(1 + seed % 2):
            at = damage.randrange(len(damaged))
            stop = min(at + damage.randint(0, 12), len(damaged))
            kind = damage.choice(("change", "cut", "double", "digits"))
            if kind == "change":
                damaged[at] = damage.randrange(256)
            elif kind == "cut":
                del damaged[at:stop]
            elif kind == "double":
                damaged[at:at] = damaged[at:stop]
            else:
                damaged[at:stop] = str(damage.choice((-1, 0, 7, 10**9, 10**30))).encode()
        path.write_bytes(damaged)
        try:
            trace = sv.read_log(path)
        except sv.TraceError as error:
            refusals.append(str(error))
            continue
        sv.check_invariants(trace)
        read += 1
    assert len(refusals) > 150
    assert read > 10
    assert not [each for each in refusals if "\n" in each or len(each) > 600]


def test_replay_draws_a_log(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    logged().save(path)
    assert cli(["replay", str(path)]) == 0
    page = (tmp_path / "log.html").read_text()
    assert "masking, 5 rounds, 4 requests" in page
    assert "log.html" in capsys.readouterr().out


def test_the_page_in_docs_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = debug_page("Logs")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert same(sv.read_log("log.jsonl"), names["trace"])
    assert not sv.check_invariants(names["trace"])
    assert names["trace"].output(0) == [11, 12, 13]
    (lines,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    for line in lines.splitlines():
        VALIDATOR.validate(json.loads(line))
    trace = read(tmp_path, lines.splitlines())
    assert trace.output(0) == [11, 30]
    assert trace.text(11) == " def"
    assert not sv.check_invariants(trace)
