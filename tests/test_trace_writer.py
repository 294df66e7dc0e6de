"""`TraceWriter`: `MaskingDecoder`, logged by it, against the log made by hand."""

from functools import cache

import numpy as np
import pytest
from conftest import make_pair
from handmade_log import HandLog
from masking_decoder import MaskingDecoder
from tiny_run import META

import specviz as sv
from specviz.record.trace import Trace

PROMPTS = [[3, 14, 15, 92, 65], [35, 89], [79, 32, 38, 46, 26, 43, 38], [32, 79, 50]]
K = 4


def writer(**settings) -> sv.TraceWriter:
    given = {"vocabulary_size": 97, "num_draft_tokens": K, "budget": 64, "decoder": "masking"}
    return sv.TraceWriter(PROMPTS, **(given | settings))


@cache
def logged(slip: int = 0, rounds: int = 5) -> sv.TraceWriter:
    log = writer()
    MaskingDecoder(make_pair("llama"), PROMPTS, log, K, slip).decode(rounds)
    return log


@cache
def by_hand(slip: int = 0, rounds: int = 5) -> Trace:
    log = HandLog(PROMPTS, K)
    MaskingDecoder(make_pair("llama"), PROMPTS, log, K, slip).decode(rounds)
    header = {"num_draft_tokens": K, "vocabulary_size": 97, "batch_size": 4, "eos_token_ids": []}
    return log.trace(META | header)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("slip", [0, 1, 2])
def test_finds_what_the_log_made_by_hand_finds(slip):
    mine, theirs = (sv.check_invariants(each) for each in (logged(slip).trace(), by_hand(slip)))
    assert list(mine) == list(theirs)
    assert bool(mine) == (slip > 0)


def test_has_the_tables_of_the_log_made_by_hand():
    mine, theirs = logged().trace(), by_hand()
    for name in ("feeds", "holes", "moves", "requests"):
        table = getattr(mine, name)
        if name == "holes":  # by hand, a hole is one slot long
            spans = sum((h["stop"] - h["start"]).sum() for h in (table, theirs.holes))
            assert spans == 2 * len(theirs.holes["stop"])
            continue
        for column, values in table.items():
            assert np.array_equal(values, getattr(theirs, name)[column]), (name, column)
    last = mine.rows["round"] == mine.num_rounds - 1
    for column, values in mine.rows.items():
        if values.dtype == np.float32 or column in ("drafts", "path"):
            continue
        kept = ~last if column == "pending_after" else slice(None)  # what no round says
        assert np.array_equal(values[kept], theirs.rows[column][kept]), column
