"""The tables of a run against numbers worked out by hand."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from specviz import metrics

TABLES = ("rounds", "rows", "stages", "stage_totals", "acceptance", "requests", "summary")
PHASES_MS = {"schedule": [1, 0], "draft": [4, 2], "verify": [3, 2]}
PHASES_MS |= {"accept": [1, 0], "synchronise": [1, 0]}
NAMES = ("round", "row", "request", "length", "drafted", "accepted", "gained", "finished")
# In the last entry, a finished row stays in the batch.
ENTRIES = [
    (0, 0, 0, 5, 2, 2, 3, 0),
    (0, 1, 1, 4, 2, 0, 1, 1),
    (1, 0, 0, 8, 2, 1, 2, 1),
    (1, 1, 1, 5, 0, 0, 0, 1),
]
# start, pending and discarded of each: two slots are padding or holes, then four
UNUSED = [(0, 4, 0), (1, 5, 1), (0, 9, 0), (4, 8, 2)]


def columns(names, entries):
    values = np.array(entries, np.int32).reshape(-1, len(names)).T
    return dict(zip(names, values, strict=True))


def make_run(entries=ENTRIES, **more):
    meta = {"strategy": "eqspec", "drafter": "model", "num_draft_tokens": 2, "batch_size": 2}
    meta |= {"decisions": ["grouped", "fallback"], "kv_bytes_per_slot": {"target": 64, "draft": 16}}
    rounds = {f"{name}_ms": np.array(ms, np.float32) for name, ms in PHASES_MS.items()}
    rounds |= {"batch": np.array([2, 2]), "slots": np.array([7, 9]), "decision": np.array([0, 1])}
    rows = columns(NAMES, entries)
    rows |= columns(("start", "pending", "discarded"), UNUSED[: len(entries)])
    return SimpleNamespace(meta=meta, rounds=rounds, rows=rows, **more)


def test_rounds():
    table = metrics.rounds(make_run())
    assert " ".join(table.columns) == (
        "round decision batch_rows cache_slots mean_accepted_tokens gained_tokens discarded_tokens "
        "padding_share hole_share schedule_ms draft_ms verify_ms accept_ms sync_ms total_ms"
    )
    assert table["discarded_tokens"].tolist() == [1, 2]
    # Slots up to the last tokens: 5 + 6, then 10 + 9.
    assert table["padding_share"].tolist() == pytest.approx([1 / 11, 4 / 19])
    assert table["hole_share"].tolist() == pytest.approx([1 / 11, 2 / 19])
    assert table["decision"].tolist() == ["grouped", "fallback"]
    assert table["batch_rows"].tolist() == [2, 2]
    assert table["cache_slots"].tolist() == [7, 9]
    assert table["mean_accepted_tokens"].tolist() == [1.0, 1.0]
    assert table["gained_tokens"].tolist() == [4, 2]
    assert table["total_ms"].tolist() == [10.0, 4.0]


def test_rounds_count_the_bytes_that_were_moved():
    """Realigned bytes: all moves of the phase synchronise, and shifts within a row.

    All other moves go from row to row and are compacted bytes. The sums exceed 32 bits.
    """
    entries = [  # round, phase, model, from_row, to_row, length
        (0, 0, 0, 2, 1, 5),  # a row takes the place of one that has left,
        (0, 0, 1, 2, 1, 4),
        (0, 0, 0, 0, 0, 7),  # and another one makes room for a longer prompt
        (1, 4, 0, 1, 1, 3),
        (1, 4, 1, 1, 1, 3),
        (1, 4, 0, 0, 0, 2**27),
        (1, 4, 1, 2, 0, 1),
    ]
    moves = columns(("round", "phase", "model", "from_row", "to_row", "length"), entries)
    table = metrics.rounds(make_run(moves=moves))
    assert table["realigned_bytes"].tolist() == [7 * 64, 3 * 64 + 3 * 16 + 2**33 + 16]
    assert table["compacted_bytes"].tolist() == [5 * 64 + 4 * 16, 0]


@pytest.mark.parametrize("make_table", [getattr(metrics, name) for name in TABLES], ids=TABLES)
def test_a_run_that_was_not_recorded_has_no_tables(make_table):
    message = "run=None: this run was not recorded; call generate(..., record=True)"
    with pytest.raises(ValueError, match=re.escape(message)):
        make_table(None)


def test_rows_are_the_record_without_its_wider_columns():
    run = make_run()
    run.rows["drafts"] = np.zeros((4, 2), np.int32)
    table = metrics.rows(run)
    assert tuple(table.columns) == (*NAMES, "start", "pending", "discarded")
    assert table["finished"].tolist() == [False, True, True, True]


def test_stages_and_their_totals():
    table = metrics.stages(make_run())
    assert table["draft_share"].tolist() == [0.4, 0.5]
    shares = [name for name in table if name.endswith("_share")]
    assert table[shares].sum(axis=1).tolist() == pytest.approx([1, 1])
    totals = metrics.stage_totals(make_run()).set_index("phase")
    assert totals.loc["draft"].tolist() == pytest.approx([6, 6 / 14, 3])
    assert totals["total_ms"].sum() == 14


def test_acceptance_at_each_position():
    """Three entries work: they accept 2, 0 and 1 of 2 drafts."""
    table = metrics.acceptance(make_run())
    assert table["position"].tolist() == [1, 2]
    assert table["drafted_tokens"].tolist() == [3, 3]
    assert table["accepted_tokens"].tolist() == [2, 1]
    assert table["acceptance"].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert table["conditional_acceptance"].tolist() == pytest.approx([2 / 3, 1 / 2])


def test_requests():
    table = metrics.requests(make_run())
    names = ["rounds", "new_tokens", "mean_acceptance_length"]
    names += ["draft_acceptance_rate", "full_acceptance_share"]
    assert table["request"].tolist() == [0, 1]
    assert table[names].values.tolist() == [[2, 5, 2.5, 0.75, 0.5], [1, 1, 1, 0, 0]]


def test_summary():
    table = metrics.summary(make_run())
    assert len(table) == 1
    assert table.iloc[0].to_dict() == pytest.approx(
        {
            "strategy": "eqspec",
            "drafter": "model",
            "num_draft_tokens": 2,
            "batch_size": 2,
            "prompts": 2,
            "new_tokens": 6,
            "rounds": 2,
            "mean_acceptance_length": 2,
            "draft_acceptance_rate": 0.5,
            "full_acceptance_share": 1 / 3,
            "discarded_tokens": 3,
            "grouping_rate": 0.5,
            "threads": math.nan,
            "total_s": 0.014,
            "tokens_per_s": 6 / 0.014,
        },
        nan_ok=True,
    )
    timed = metrics.summary(make_run(num_requests=5), total_s=2.0).iloc[0]
    assert (timed["prompts"], timed["total_s"], timed["tokens_per_s"]) == (5, 2.0, 3.0)


def test_grouping_rate_counts_full_batches_alone():
    """The rate is over all rounds.

    A round with fewer rows than the batch size does not count as grouped, however equal its rows
    are.
    """
    run = make_run()
    assert metrics.summary(run)["grouping_rate"][0] == 0.5
    run.rounds["batch"] = np.array([1, 2], np.int32)
    assert metrics.summary(run)["grouping_rate"][0] == 0
    run.meta["batch_size"] = 1
    assert metrics.summary(run)["grouping_rate"][0] == 0.5
    run.meta["decisions"] = ["in place"]
    assert np.isnan(metrics.summary(run)["grouping_rate"][0])


def test_a_run_without_drafts_has_no_rate():
    run = make_run([(0, 0, 0, 5, 0, 0, 1, 0), (1, 0, 0, 6, 0, 0, 1, 1)])
    run.meta["num_draft_tokens"] = 0
    summary = metrics.summary(run).iloc[0]
    assert summary["mean_acceptance_length"] == 1
    assert np.isnan(summary["draft_acceptance_rate"])
    assert np.isnan(summary["full_acceptance_share"])
    assert len(metrics.acceptance(run)) == 0


def test_a_run_without_entries_gives_nan_not_an_error():
    run = make_run([])
    assert np.isnan(metrics.summary(run)["mean_acceptance_length"][0])
    assert metrics.rounds(run)["mean_accepted_tokens"].isna().all()
    assert metrics.acceptance(run)["acceptance"].isna().all()
    assert len(metrics.requests(run)) == 0


def test_smallest_gap_looks_at_choices_that_decided_something():
    """The gap counts the target's indices 0..a and the draft's 0..min(a, K-1) of active rows.

    The entries accept 2, 0 and 1 drafts; in the last entry a row idles.
    """
    run = make_run()
    target = np.array([[3, 2, 0.5], [4, 0.1, 0.1], [2, 0.75, 0.1], [0.1, 0.1, 0.1]])
    draft = np.array([[3, 2], [4, 0.1], [2, 0.625], [0.1, 0.1]])
    for model, gaps in (("target", target), ("draft", draft)):
        run.rows[f"{model}_top_logprobs"] = np.stack(
            [-1 + 0 * gaps, -1 - gaps, -9 + 0 * gaps], -1
        ).astype(np.float32)
    assert metrics.smallest_gap(run) == 0.5
    run.rows["target_top_logprobs"] -= np.array([0, 1, 0], np.float32)
    assert metrics.smallest_gap(run) == 0.625
    run.rows["draft_top_logprobs"] = np.zeros((4, 2, 0), np.float32)  # proposals without logits
    assert metrics.smallest_gap(run) == 1.5
    run.rows["target_top_logprobs"] = np.zeros((4, 3, 0), np.float32)
    assert metrics.smallest_gap(run) == np.inf
