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
    # transformers adds hooks of its own to a model that runs.
    sv.generate(pair, make_prompts(), max_new_tokens=1, progress=False)
    before = list(hooks(pair))
    names = ["autoregressive", "inplace"]
    lengths = {"num_draft_tokens": K, "max_new_tokens": 9}
    table, said = measure_overhead(pair, make_prompts(), names, [2], repetitions=1, **lengths)
    assert table["strategy"].tolist() == [name for name in names for _ in PHASES]
    assert set(table["batch_size"]) == {2}
    assert table["phase"].tolist() == [*PHASES, *PHASES]
    assert PHASES == ("schedule", "draft", "verify", "accept", "synchronise")
    assert table["forwards"].tolist() == [0, 0, 1, 0, 0, 0, K, 1, 0, 0]
    # The clock is read when a phase begins and ends, and when a forward begins and ends.
    assert table["model_ms"].to_numpy() == pytest.approx(table["forwards"])
    assert table["beside_ms"].to_numpy() == pytest.approx(table["forwards"] + 1)
    assert table["ms"].to_numpy() == pytest.approx(2 * table["forwards"] + 1)
    assert table.groupby("strategy")["share"].sum().to_numpy() == pytest.approx(1)
    asked = {"prompts": len(make_prompts()), "repetitions": 1, "num_draft_tokens": K}
    assert said | asked == said
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
