"""The time of a phase outside the models.

All forwards are counted, none twice, and the measurement leaves no trace behind.
"""

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import pytest
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.record.schema import PHASES
from specviz.studies import overhead
from specviz.studies.overhead import measure_overhead

K = 3


def test_every_phase_has_its_forwards_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that advances by 1 ms each time it is read."""
    ticks = count()
    clock = SimpleNamespace(perf_counter=lambda: 1e-3 * next(ticks))
    monkeypatch.setattr(overhead, "time", clock)
    pair = make_pair("llama")
    sv.generate(
        pair, make_prompts(), max_new_tokens=1, progress=False
    )  # transformers adds hooks of its own to a model that runs
    before = list(hooks(pair))
    table, said = measure_overhead(
        pair,
        make_prompts(),
        ["autoregressive", "inplace"],
        [2],
        num_draft_tokens=K,
        max_new_tokens=9,
        repetitions=1,
    )
    assert table[["strategy", "batch_size"]].drop_duplicates().to_numpy().tolist() == [
        ["autoregressive", 2],
        ["inplace", 2],
    ]
    assert table["phase"].tolist() == [*PHASES, *PHASES]
    forwards = table.set_index(["strategy", "phase"])["forwards"]
    assert forwards["inplace"].to_dict() == {
        "schedule": 0,
        "draft": K,
        "verify": 1,
        "accept": 0,
        "synchronise": 0,
    }
    assert forwards["autoregressive"].to_dict() == {
        "schedule": 0,
        "draft": 0,
        "verify": 1,
        "accept": 0,
        "synchronise": 0,
    }
    # The clock is read when a phase begins and ends, and when a forward begins and ends.
    assert table["model_ms"].to_numpy() == pytest.approx(table["forwards"])
    assert table["beside_ms"].to_numpy() == pytest.approx(table["forwards"] + 1)
    assert table["ms"].to_numpy() == pytest.approx(2 * table["forwards"] + 1)
    assert table.groupby("strategy")["share"].sum().to_numpy() == pytest.approx(1)
    assert (said["prompts"], said["repetitions"], said["num_draft_tokens"]) == (
        len(make_prompts()),
        1,
        K,
    )
    assert list(hooks(pair)) == before


def hooks(pair: sv.Pair) -> Iterator[object]:
    for model in (pair.target, pair.draft):
        for module in model.modules():
            yield from module._forward_hooks.values()
            yield from module._forward_pre_hooks.values()


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^repetitions must be an int >= 1, got 0; "):
        measure_overhead(make_pair("llama"), make_prompts(), repetitions=0)
    with pytest.raises(ValueError, match=r"^batch_sizes\[1\] must be an int >= 1, got 0; "):
        measure_overhead(make_pair("llama"), make_prompts(), batch_sizes=[1, 0])
