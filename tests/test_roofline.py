"""Floors by hand and against what real runs fed and moved; break-even acceptance; the best K."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import make_prompts
from tiny_run import TRACE

import specviz as sv
from specviz.costs.breakeven import (
    best_num_draft_tokens,
    break_even_length,
    break_even_rate,
    check_rates,
    realigned_rows,
    round_seconds,
    speculation,
)
from specviz.costs.ceilings import Ceilings
from specviz.costs.roofline import ACCEPTING, CHOOSING, Floor, Roofline, against_floor, floors
from specviz.costs.shapes import ModelShape, named_pair
from specviz.engine.strategies import Strategy
from specviz.record.schema import PHASES

BANDWIDTH, RATE, LAUNCH = 1e9, 1e10, 1e-6
CPU = Ceilings(
    ((1, BANDWIDTH),), {"float32": ((1, RATE),), "bfloat16": ((1, RATE),)}, LAUNCH, device="one"
)
GPU = replace(CPU, replay_s=LAUNCH / 4)
TARGET = ModelShape(
    layers=3, hidden=16, heads=4, kv_heads=2, head_dim=4, intermediate=20, vocabulary=50
)
DRAFT = ModelShape(
    layers=1, hidden=8, heads=2, kv_heads=1, head_dim=4, intermediate=12, vocabulary=50, tied=True
)
KV = {"target": 2 * 3 * 2 * 4 * 4, "draft": 2 * 1 * 1 * 4 * 4}  # bytes a slot in float32
LINE = Roofline(TARGET, DRAFT, CPU)


def test_a_forward_reads_weights_and_kv_and_writes_kv_and_logits() -> None:
    floor = LINE.forward(TARGET, rows=4, tokens=3, slots=100)
    weights = 4 * (TARGET.parameters - 50 * 16 + 12 * 16)  # of the input embedding twelve entries
    assert floor.bytes == weights + 4 * (100 + 3) * KV["target"] + 4 * 3 * 50 * 4
    assert floor.flops == TARGET.flops(4, 3, 100)
    assert floor.launches == TARGET.launches()
    assert floor.bandwidth_s == pytest.approx(floor.bytes / BANDWIDTH)
    assert floor.compute_s == pytest.approx(floor.flops / RATE)
    assert LINE.forward(TARGET, 0, 3, 100).seconds == LINE.forward(TARGET, 4, 0, 100).seconds == 0


@pytest.mark.parametrize(
    ("line", "launch_s", "combine"),
    [
        (LINE, LAUNCH, sum),  # one after the other
        (replace(LINE, ceilings=GPU), LAUNCH, max),  # the device works while the host launches
        (replace(LINE, ceilings=GPU, captured=True), LAUNCH / 4, sum),
    ],
)
def test_launches_count_as_the_device_has_them(
    line: Roofline, launch_s: float, combine: Any
) -> None:
    for rows, slots in ((1, 10), (500, 1000)):
        floor = line.forward(TARGET, rows, 1, slots)
        work_s = max(floor.bytes / BANDWIDTH, floor.flops / RATE)
        assert floor.seconds == pytest.approx(combine([work_s, floor.launches * launch_s]))


def test_what_fits_a_cache_is_read_at_its_speed() -> None:
    curve = Ceilings(((1e3, 1e12), (1e4, 1e12), (1e5, 1e9)), {"float32": ((1, 1e18),)}, 0.0)
    line = Roofline(TARGET, DRAFT, curve)
    small, large = line.moving(20), line.moving(2000)
    assert small.seconds == pytest.approx(small.bytes / 1e12)
    assert large.seconds == pytest.approx(large.bytes / 1e9)


def test_phases_of_a_round() -> None:
    b, k, slots = 5, 4, 60
    phases = LINE.phases(b, k, slots, moved=120, entering=2, prompt=30)
    assert tuple(phases) == PHASES
    steps = [
        LINE.forward(DRAFT, b, 2, slots - k),
        *(LINE.forward(DRAFT, b, 1, slots - k / 2) for _ in range(k - 1)),
    ]
    choosing = k * (b * 50 * 4 / BANDWIDTH + CHOOSING * LAUNCH)
    assert phases["draft"].seconds == pytest.approx(sum(step.seconds for step in steps) + choosing)
    assert phases["verify"] == LINE.forward(TARGET, b, k + 1, slots)
    logits_s = b * (k + 1) * 50 * 4 / BANDWIDTH
    assert phases["accept"].seconds == pytest.approx(logits_s + ACCEPTING * LAUNCH)
    moved_s = 2 * 120 * sum(KV.values()) / BANDWIDTH
    assert phases["synchronise"].seconds == pytest.approx(moved_s + 2 * (3 + 1) * LAUNCH)
    prefill = [LINE.forward(shape, 2, 30, 15, logits=False) for shape in (TARGET, DRAFT)]
    assert phases["schedule"].seconds == pytest.approx(sum(floor.seconds for floor in prefill))
    seconds = LINE.phase_seconds(b, k, slots, moved=120)
    assert seconds["verify"] == phases["verify"].seconds
    assert seconds["schedule"] == LINE.phase_seconds(b, k, slots)["synchronise"] == 0


def test_autoregressive_decoding_is_k_of_0_and_lookup_drafts_for_nothing() -> None:
    step = LINE.phases(5, 0, 60)
    assert step["draft"].seconds == 0
    assert step["verify"] == LINE.forward(TARGET, 5, 1, 60)
    assert replace(LINE, draft=None).phases(5, 4, 60)["draft"].seconds == 0
    assert replace(LINE, draft=None).moving(7).bytes == 2 * 7 * KV["target"]


def test_arrays_go_through_as_numbers_do() -> None:
    rounds = np.array([[1.0, 5, 8], [0, 1, 6], [9, 30, 70], [0, 3, 9], [1, 0, 2], [4, 0, 9]])

    def phases(*sizes: Any) -> dict[str, Floor]:
        moved, entering, prompt = sizes[3:]
        return LINE.phases(*sizes[:3], moved=moved, entering=entering, prompt=prompt)

    together = phases(*rounds)
    for i, sizes in enumerate(rounds.T):
        for phase, alone in phases(*sizes).items():
            several = np.broadcast_to(together[phase].seconds, 3)
            assert several[i] == pytest.approx(alone.seconds)


def test_floors_as_a_table() -> None:
    table = floors(LINE.phases(5, 4, 60)).set_index("phase")
    verify = LINE.forward(TARGET, 5, 5, 60)
    assert table.loc["verify", "megabytes"] == pytest.approx(verify.bytes / 1e6)
    assert table.loc["verify", "floor_ms"] == pytest.approx(1e3 * verify.seconds)
    assert table["bound"].tolist() == ["nothing", "launch", "bandwidth", "launch", "nothing"]
    assert LINE.forward(TARGET, 5, 500, 60).bound == "compute"
    assert Floor().bound == "nothing"


def test_realigned_rows_are_those_that_gain_otherwise_than_the_longest() -> None:
    """All gains of three rows, enumerated with their probabilities."""
    rates = [0.8, 0.5, 0.1]
    gains = -np.diff([1, *rates, 0])
    expected = sum(
        float(np.prod(gains[list(each)])) * sum(gain != each[0] for gain in each[1:])
        for each in itertools.product(range(4), repeat=3)
    )
    assert realigned_rows(3, rates) == pytest.approx(expected)
    assert (
        realigned_rows(1, rates) == realigned_rows(8, [1.0, 1.0]) == realigned_rows(8, [0.0]) == 0
    )
    assert realigned_rows(np.array([1, 3]), rates).tolist() == pytest.approx([0, expected])


@pytest.mark.parametrize(("lengths", "ratio"), [((90, 60, 30), 1.0), ((60, 60, 60), 1.0564)])
def test_a_row_stays_where_it_gains_what_the_longest_length_gains(
    lengths: tuple[int, ...], ratio: float
) -> None:
    """Exact over all gains: `realigned_rows` is right where the longest row stays the longest."""
    rates = [0.8, 0.5, 0.1]
    chances = -np.diff([1, *rates, 0])
    expected = 0.0
    for gains in itertools.product(range(1, 5), repeat=3):
        after = [n + gain for n, gain in zip(lengths, gains, strict=True)]
        step = max(after) - max(lengths)
        moving = sum(gain != step for gain in gains)
        expected += float(np.prod([chances[gain - 1] for gain in gains])) * moving
    assert expected / realigned_rows(3, rates) == pytest.approx(ratio, abs=1e-3)


def test_a_run_by_hand_against_its_floor() -> None:
    """Rounds of tiny_run: rows of 4 and 2, of 5 and 5, of 7 and 3 tokens; 4 and 6 slots move."""
    times = {f"{phase}_ms": np.full(3, 2.0, np.float32) for phase in PHASES}
    trace = replace(TRACE, rounds=TRACE.rounds | times)
    table = against_floor(trace, LINE).set_index("phase")
    rounds = [  # mean length, moved, entering, tokens of each to be read
        (3.0, 4, 2, 2.0),
        (5.0, 0, 0, 0.0),
        (5.0, 3, 1, 2.0),
    ]
    per_round = [
        LINE.phases(2, 2, n + 2, moved=moved, entering=entering, prompt=prompt)
        for n, moved, entering, prompt in rounds
    ]
    for phase in PHASES:
        assert table.loc[phase, "floor_ms"] == pytest.approx(
            1e3 * sum(found[phase].seconds for found in per_round)
        ), phase
        assert table.loc[phase, "measured_ms"] == 6
        assert table.loc[phase, "ratio"] == pytest.approx(6 / table.loc[phase, "floor_ms"])
    assert table.loc["round", "measured_ms"] == 30
    assert table.loc["round", "floor_ms"] == pytest.approx(table["floor_ms"].iloc[:-1].sum())


def record(pair: sv.Pair, how: Strategy) -> sv.Result:
    return sv.generate(
        pair, make_prompts(), strategy=how, batch_size=3, max_new_tokens=12, record=True,
        progress=False,
    )  # fmt: skip


def bytes_as_seconds(pair: sv.Pair) -> tuple[Roofline, int]:
    """A device whose time in seconds is the bytes that it moves; and the bytes of a slot."""
    ceilings = Ceilings(((1, 1.0),), {"float32": ((1, 1e30),)}, 0.0)
    models = (pair.target, pair.draft)
    shapes = [ModelShape.from_config(model.config.to_dict()) for model in models]
    per_slot = sum(shape.kv_bytes_per_slot("float32") for shape in shapes)
    return Roofline(shapes[0], shapes[1], ceilings), per_slot


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", ["eqspec", "rollback", "masking", "inplace", "autoregressive"])
def test_a_real_run_moved_what_its_rows_say(name: str, pair: sv.Pair) -> None:
    """Against the moves that the recorder saw; and a result says the same as its trace."""
    result = record(pair, sv.strategy(name))
    trace = result.trace
    assert trace is not None
    line, per_slot = bytes_as_seconds(pair)
    moves = trace.moves
    realigned = (moves["phase"] == PHASES.index("synchronise")) & (moves["model"] == 0)
    table = against_floor(trace, line)
    floor_ms = table.set_index("phase").loc["synchronise", "floor_ms"]
    assert floor_ms / 1e3 == pytest.approx(2 * moves["length"][realigned].sum() * per_slot)
    pd.testing.assert_frame_equal(against_floor(result, line), table)


def test_a_pool_is_charged_for_what_it_trades(pair: sv.Pair) -> None:
    """EXSPEC moves K/V while it schedules.

    A parked row may move twice before a round shows it, so that the floor counts less.
    """
    trace = record(pair, sv.strategy("exspec", window=6)).trace
    assert trace is not None
    line, per_slot = bytes_as_seconds(pair)
    recorded = int(trace.moves["length"].sum()) * per_slot
    first = np.unique(trace.rows["request"], return_index=True)[1]
    prefill_s = 0.0
    for number in np.unique(trace.rows["round"][first]):
        entering = first[trace.rows["round"][first] == number]
        tokens = float((trace.rows["length"][entering] - 1).mean())
        prefill_s += float(line.prefill(len(entering), tokens).seconds)
    floor_ms = against_floor(trace, line).set_index("phase").loc["schedule", "floor_ms"]
    assert 0.5 * recorded <= floor_ms / 1e3 - prefill_s <= recorded


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: replace(LINE, dtype="float16"), "dtype must be a measured one .*, got 'float16'"),
        (
            lambda: replace(LINE, captured=True),
            "captured must be False, got True: CUDA graphs were not measured on one; leave it out",
        ),
        (lambda: against_floor(None, LINE), "run=None: this run was not recorded"),
        (
            lambda: against_floor(replace(TRACE, meta=TRACE.meta | {"dtype": "bfloat16"}), LINE),
            "dtype of the roofline must be the run's, 'bfloat16', got 'float32'",
        ),
        (lambda: check_rates([]), r"rates must be numbers from 0 to 1, got \[\]"),
        (lambda: check_rates(["a"]), r"rates must be numbers from 0 to 1, got \['a'\]"),
        (lambda: check_rates([0.5, 0.6]), r"rates must not rise, got \[0.5, 0.6\]"),
        (lambda: round_seconds(lambda b, k, t: {"verify": 0.0}, 1, 1, 9), "pass costs above 0"),
    ],
)
def test_bad_input_says_why(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def simple_costs(rows: Any, k: Any, slots: Any) -> dict[str, Any]:
    """A step costs 10; a round 2 a draft, 11 for the verification, and 5 for realigning more than
    one row.
    """
    return {"draft": 2.0 * k, "verify": 10.0 + (k > 0), "synchronise": 5.0 * (rows > 1) * (k > 0)}


def test_break_even_is_the_price_of_a_round_in_steps() -> None:
    assert round_seconds(simple_costs, 1, 4, 50) == 19
    assert break_even_length(simple_costs, 1, 4, 50) == pytest.approx(1.9)
    assert break_even_length(simple_costs, 8, 4, 50) == pytest.approx(2.4)
    for length, k in ((1.9, 4), (1.0, 4), (5.0, 4), (3.2, 8)):
        rate = break_even_rate(length, k)
        assert sum(rate**j for j in range(k + 1)) == pytest.approx(length)
    assert np.isnan(break_even_rate(5.1, 4))
    assert break_even_rate(0.9, 4) == 0


def test_the_best_k_is_the_one_of_most_tokens() -> None:
    rates = [0.8, 0.6, 0.3, 0.1, 0.05]
    table = speculation(simple_costs, 1, 50, 8, rates)
    assert table["num_draft_tokens"].tolist() == [0, 1, 2, 3, 4, 5]  # no further than the rates
    assert table["mean_acceptance_length"].tolist() == pytest.approx([1, 1.8, 2.4, 2.7, 2.8, 2.85])
    assert table["tokens_per_s"].tolist() == pytest.approx(
        [1 / 10, 1.8 / 13, 2.4 / 15, 2.7 / 17, 2.8 / 19, 2.85 / 21]
    )
    assert table["speedup"].tolist() == pytest.approx(
        [1, 18 / 13, 24 / 15, 27 / 17, 28 / 19, 28.5 / 21]
    )
    assert best_num_draft_tokens(simple_costs, 1, 50, rates) == 2
    assert best_num_draft_tokens(simple_costs, 1, 50, rates, max_draft_tokens=1) == 1
    assert best_num_draft_tokens(simple_costs, 8, 50, [0.1, 0.0]) == 0  # does not pay
    pays = table["mean_acceptance_length"] > table["break_even_length"]
    assert (pays == (table["speedup"] > 1)).all()
    assert "speedup" not in speculation(simple_costs, 1, 50, 8)


def test_speculation_pays_less_the_more_rows_there_are() -> None:
    """Rows fill the matrix units: a verification of K + 1 tokens becomes as dear as K + 1 steps."""
    large = Ceilings(((1, 4e12),), {"bfloat16": ((1, 7e14),)}, 4e-6, 1e-6)
    line = Roofline(*named_pair("qwen3-8b/0.6b"), large, "bfloat16", captured=True)
    lengths = [break_even_length(line.phase_seconds, rows, 4, 600) for rows in (8, 32, 128, 512)]
    assert lengths == sorted(lengths)
    assert lengths[0] < 2.5
    assert lengths[-1] > 4
