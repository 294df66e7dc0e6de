"""The record: what it tells, how it is stored, and what is refused when it is made or read."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors
from tiny_run import META, OUTPUTS, PROMPTS, TRACE, changed

from specviz.record.replay import Replay
from specviz.record.schema import ACCEPTED, BONUS, COLUMNS, PROMPT, TraceError
from specviz.record.trace import FORMAT_VERSION, Trace
from specviz.record.trees import DERIVED, same_values


def test_prompts_outputs_origins_and_texts():
    assert [TRACE.prompt(r) for r in range(TRACE.num_requests)] == PROMPTS
    assert [TRACE.output(r) for r in range(TRACE.num_requests)] == OUTPUTS
    assert TRACE.num_rounds == 3
    a, b = ACCEPTED, BONUS
    assert TRACE.origins(0).tolist() == [PROMPT] * 4 + [b, a, b, a, a, b]
    assert TRACE.origins(1).tolist() == [PROMPT] * 2 + [ACCEPTED, ACCEPTED, BONUS, BONUS]
    assert TRACE.origins(2).dtype == np.uint8
    assert (TRACE.text(2), TRACE.text(11)) == ("<eos>", "<11>")
    assert repr(TRACE) == "Trace(eqspec, 3 requests, 3 rounds)"
    with pytest.raises(IndexError, match="no request 3"):
        TRACE.prompt(3)
    # A draft that clipping has kept is accepted, too.
    accepted = np.where(TRACE.rows["round"] == 1, 2, TRACE.rows["accepted"]).astype(np.int32)
    assert changed("rows", accepted=accepted).origins(1)[-1] == ACCEPTED


def test_a_saved_record_comes_back_byte_for_byte(tmp_path):
    TRACE.save(tmp_path / "a.safetensors")
    loaded = Trace.load(str(tmp_path / "a.safetensors"))
    loaded.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert loaded.meta == TRACE.meta == META
    for table, columns in COLUMNS.items():
        for name, column in columns.items():
            values = getattr(loaded, table)[name]
            assert same_values(values, getattr(TRACE, table)[name])
            assert values.dtype == column.dtype
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


def test_a_record_is_read_only_and_apart_from_its_source():
    meta = dict(META)
    trace = replace(TRACE, meta=meta)
    meta["strategy"] = "other"
    assert trace.meta["strategy"] == "eqspec"
    with pytest.raises(ValueError, match="read-only"):
        trace.rows["length"][0] = 1


def test_an_interrupted_save_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    TRACE.save(path)
    before = path.read_bytes()

    def interrupt(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        TRACE.save(path)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [before]


with TemporaryDirectory() as folder:
    TRACE.save(Path(folder) / "tiny")
    WHOLE = (Path(folder) / "tiny").read_bytes()
TENSORS = from_safetensors(WHOLE)


def stored(header: object = (), **columns: np.ndarray | None) -> bytes:
    """The tiny run's file with other header entries and other columns; None leaves one out."""
    tensors = {k: values for k, values in (TENSORS | columns).items() if values is not None}
    told = {"format_version": FORMAT_VERSION, "meta": META} | dict(header)
    return to_safetensors(tensors, {"specviz": json.dumps(told)})


def refuse(tmp_path, content: bytes, match: str):
    """Loading fails with one sentence: the file, the fault and, after a semicolon, the remedy."""
    path = tmp_path / "faulty.safetensors"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=match) as caught:
        Trace.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "; " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_loading_what_is_no_trace(tmp_path):
    for content in (b"", b"garbage " * 100, gzip.compress(WHOLE)):
        refuse(tmp_path, content, "is not a safetensors file, or a damaged one")
    for content in (to_safetensors(TENSORS), to_safetensors(TENSORS, {"format": "pt"})):
        refuse(tmp_path, content, "is a safetensors file but not a trace")
    for text in ("{", "[]", '{"meta": {}}', "[" * 100_000):
        refuse(tmp_path, to_safetensors(TENSORS, {"specviz": text}), "has a damaged trace header")
    refuse(tmp_path, stored({"meta": 1}), "meta lacks batch_size, created")


def test_loading_another_format_version_names_both(tmp_path):
    for version in [FORMAT_VERSION + 1, 0, "1", 1.0, None, True, -1, 10**30, ["x"]]:
        match = re.escape(f"has format version {version!r}, but this release reads version 3; ")
        refuse(tmp_path, stored({"format_version": version}), match)


def test_loading_names_a_column_that_is_missing_or_of_a_wrong_kind(tmp_path):
    for table, columns in COLUMNS.items():
        # A file has all columns of this table or none.
        of_table = {f"states.{each}": TRACE.states[each] for each in columns if table == "states"}
        for column in columns:
            name, values = f"{table}.{column}", getattr(TRACE, table)[column]
            other = np.uint8 if values.dtype != np.uint8 else np.int32
            faults = [np.nan_to_num(values).astype(kind) for kind in (np.float64, other)]
            faults += [values[None], np.zeros((), values.dtype)]
            for fault in faults:
                refuse(tmp_path, stored(**of_table | {name: fault}), f"{name} is ")
            if of_table or column not in DERIVED.get(table, ()):
                lacking = stored(**of_table | {name: None})
                refuse(tmp_path, lacking, f"columns are missing: {name};")


def test_a_file_leaves_out_what_follows_from_the_rest(tmp_path):
    """A chain that is verified whole takes no more room than before these columns existed."""
    derived = {f"{table}.{column}" for table, columns in DERIVED.items() for column in columns}
    assert not derived & TENSORS.keys()
    capacity = TRACE.rounds["capacity"] + 1
    changed("rounds", capacity=capacity.astype(np.int32)).save(tmp_path / "other.safetensors")
    again = Trace.load(tmp_path / "other.safetensors")
    assert again.rounds["capacity"].tolist() == capacity.tolist()
    stored_columns = from_safetensors((tmp_path / "other.safetensors").read_bytes())
    assert derived & stored_columns.keys() == {"rounds.capacity"}


def test_a_draft_model_may_read_drafts_that_were_not_proposed():
    of_draft = int(np.flatnonzero(TRACE.feeds["model"] == 1)[0])
    values = TRACE.feeds["node"].copy()
    values[of_draft] = 9
    assert changed("feeds", node=values).feeds["node"][of_draft] == 9


HUGE = 2**31 - 1
OF_TARGET = int(np.flatnonzero(TRACE.feeds["model"] == 0)[0])
# (column, wrong value, entry)
FAULTS = [
    ("rounds.draft_ms", np.nan, 0),
    ("rounds.verify_ms", -1, 0),
    ("rows.draft_logprob", np.inf, 0),
    ("requests.prompt_offsets", 1, 0),
    ("requests.output_offsets", 2**62, -1),
    ("requests.output_offsets", 11, 1),
    ("requests.prompt_tokens", -1, 0),
    ("rounds.batch", 1, 0),
    ("rounds.capacity", -1, 0),
    ("rows.request", 3, 0),
    ("rows.length", 3, 0),
    ("rows.length", HUGE, 0),
    ("rows.drafted", 3, 0),
    ("rows.gained", 4, 0),
    ("rows.accepted", 3, 0),
    ("rows.verified", 3, 0),
    ("rows.parents", 2, 0),
    ("rows.path", 2, 0),
    ("feeds.node", 3, OF_TARGET),
    ("feeds.index", 13, 0),
    ("feeds.phase", 5, 0),
    ("feeds.visible_start", 8, 0),
    ("holes.feed", 99, 0),
    ("holes.stop", 50, 0),
]
# A record of a few entries that claims a huge cache, or rows out of order.
CLAIMS = [
    ("rounds.slots", HUGE, 0, "a cache of 2 rows and 2147483647 slots is far more than"),
    ("rows.row", HUGE, 1, "a cache of 2147483648 rows"),
    ("moves.length", HUGE, 0, "a cache of 2 rows and 2147483649 slots"),
    ("rows.round", 2, 0, "rows is not sorted by round and row"),
]


@pytest.mark.parametrize(
    ("place", "value", "entry", "match"), [*((*fault, fault[0]) for fault in FAULTS), *CLAIMS]
)
def test_a_record_that_contradicts_itself_is_refused_when_made_and_when_read(
    tmp_path, place, value, entry, match
):
    table, column = place.split(".")
    values = getattr(TRACE, table)[column].copy()
    values[entry] = value
    with pytest.raises(TraceError, match=match):
        changed(table, **{column: values})
    refuse(tmp_path, stored(**{place: values}), match)


def test_columns_of_a_wrong_size_or_name_are_refused():
    for table, column, values, match in [
        ("rounds", "slots", np.zeros(2, np.int32), "has 2 entries along N instead of 3"),
        ("rows", "emitted", np.zeros((6, 2), np.int32), r"has 2 entries along K\+1"),
        ("rows", "draft_top_ids", np.zeros((6, 2, 3), np.int32), "along j instead of"),
        ("rows", "extra", np.zeros(1, np.int32), "columns are unknown: rows.extra"),
        ("rows", "length", [1, 2], "rows.length must be a numpy array"),
    ]:
        with pytest.raises(TraceError, match=match):
            changed(table, **{column: values})


META_FAULTS = [
    ("valid", 1),
    ("right_aligned", "yes"),
    ("branches", 1),
    ("seed", "0"),
    ("sampling", 0.7),
    ("num_draft_tokens", -1),
    ("num_draft_tokens", 10**30),
    ("eos_token_ids", [2] * 2**16),
    ("eos_token_ids", [2**31]),
    ("eos_token_ids", ["2"]),
    ("token_texts", {"2": 2}),
    ("decisions", [0]),
    ("status", ["done"]),
    ("missing", ["speed"]),
    ("missing", [["moves"]]),
    ("draft_kv", "some"),
    ("kv_bytes_per_slot", {"target": 1}),
]


def test_meta_data_of_the_wrong_kind_is_refused():
    for name, value in META_FAULTS:
        with pytest.raises(TraceError, match=rf"meta\.{name} must be .*; record the run again"):
            replace(TRACE, meta=META | {name: value})
    for entries, match in [
        ({"num_draft_tokens": 3}, "rows.drafts has 2 entries along K"),
        ({"versions": {"a": json.loads("[" * 40 + "]" * 40)}}, "nested more than 32 deep"),
        ({"versions": {"numpy": float("nan")}}, "meta must be a dict that JSON can hold"),
        ({"seed": np.int64(1)}, "meta must be a dict that JSON can hold"),
    ]:
        with pytest.raises(TraceError, match=match):
            replace(TRACE, meta=META | entries)


# ---------------------------------------------------------------- files of other releases

DATA = Path(__file__).parent / "data"


def test_a_file_of_every_format_version_opens():
    """Those files were written when the format had that version; they are never written again."""
    kept = [DATA / f"trace-v{number}.safetensors" for number in range(1, FORMAT_VERSION + 1)]
    assert sorted(DATA.glob("trace-v*")) == kept
    for path in kept:
        trace = Trace.load(path)
        assert len(list(Replay(trace).frames())) == 5 * trace.num_rounds > 0
    first = Trace.load(kept[0])
    assert repr(first) == "Trace(exspec, 5 requests, 8 rounds)"
    assert (first.meta["versions"]["specviz"], len(first.pool["round"])) == ("0.1.0", 22)
