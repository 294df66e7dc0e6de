"""Records hold what was decoded, for each strategy, and recording changes nothing."""

import time
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from conftest import EOS, decoded, generate, make_pair, make_prompts

import specviz as sv
from specviz.engine.timing import Stopwatch
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

K, ROWS = 4, 4  # of `decoded`
each_run = pytest.mark.parametrize(
    ("name", "refill"), [*product(("autoregressive", "eqspec", "inplace"), (True, False))]
)


def run(name: str, refill: bool, record: bool = True) -> sv.Result:
    return decoded(sv.strategy(name, refill=refill), record=record)


def recorded(name: str, refill: bool) -> Trace:
    return run(name, refill).trace


@pytest.mark.sweep(16)
@each_run
def test_recording_changes_nothing(name, refill):
    plain, kept = run(name, refill, record=False), run(name, refill)
    assert plain.trace is None
    assert plain.tokens == kept.tokens
    for column, values in plain.rows.items():
        assert np.array_equal(values, kept.rows[column]), column


@each_run
def test_without_recording_no_forward_is_logged(name, refill, monkeypatch):
    monkeypatch.setattr("specviz.record.builder.Builder.forward", None)  # a call would fail
    pair = make_pair("llama")
    assert generate(pair, [[1, 2]], max_new_tokens=2).trace is None
    strategy = sv.strategy(name, refill=refill)
    events = 0
    for event in sv.decode(pair, make_prompts()[:4], strategy=strategy, max_new_tokens=4):
        assert {cache.log for cache in event.state.caches.values()} == {None}
        events += 1
    assert events % len(PHASES) == 0
    assert events > 0


@each_run
def test_a_record_holds_what_was_decoded(name, refill, tmp_path):
    """Also when read again. The rules say more: of what was fed, moved, drafted and how likely."""
    result = run(name, refill)
    result.trace.save(tmp_path / "run")
    trace = Trace.load(tmp_path / "run")
    assert sv.check_invariants(trace) == []
    assert [trace.output(i) for i in range(trace.num_requests)] == result.tokens
    assert [trace.prompt(i) for i in range(trace.num_requests)] == make_prompts()
    rows = trace.rows
    assert ((rows["emitted"] >= 0).sum(1) == rows["gained"]).all()
    for model in MODELS if trace.meta["num_draft_tokens"] else ["target"]:
        logprobs = rows[f"{model}_top_logprobs"]
        assert logprobs.shape[2] == 5
        assert (np.diff(logprobs) <= 0).all()  # best first
        assert (np.exp(logprobs).sum(-1) <= 1 + 1e-5).all()


@each_run
def test_every_token_that_was_fed_is_recorded_once(name, refill):
    """Per row and round the target is fed K + 1 tokens, the draft two and K - 1 more.

    Both are fed a prompt but its last token, once.
    """
    trace, feeds = recorded(name, refill), recorded(name, refill).feeds
    models = ["target"] if name == "autoregressive" else MODELS
    found = Counter(zip(feeds["phase"].tolist(), feeds["model"].tolist(), strict=True))
    prompts = sum(len(prompt) - 1 for prompt in make_prompts())
    in_rounds = trace.rounds["batch"].sum()
    expected = {(PHASES.index("schedule"), MODELS.index(model)): prompts for model in models}
    read = in_rounds * (trace.meta["num_draft_tokens"] + 1)
    expected[PHASES.index("verify"), MODELS.index("target")] = read
    if len(models) == 2:
        expected[PHASES.index("draft"), MODELS.index("draft")] = in_rounds * (2 + K - 1)
    assert found == expected


@each_run
def test_the_header_says_what_was_run(name, refill):
    meta = recorded(name, refill).meta
    options = {"refill": refill}
    assert (meta["strategy"], meta["strategy_options"], meta["valid"]) == (name, options, True)
    assert (meta["keep_draft"], meta["num_draft_tokens_chosen"]) == (True, "fixed")
    drafting = name != "autoregressive"
    assert (meta["drafter"], meta["num_draft_tokens"], meta["batch_size"]) == (
        ("model", K, ROWS) if drafting else ("none", 0, ROWS)
    )
    one_slot = 3 * 2 * 2 * 8 * 4  # layers, K and V, heads, depth, bytes
    assert meta["kv_bytes_per_slot"] == {"target": one_slot, "draft": one_slot if drafting else 0}
    assert (meta["device"], meta["dtype"], meta["eos_token_ids"]) == ("cpu", "float32", EOS)


def test_token_texts_are_kept_for_the_tokens_that_occur(embedded):
    trace = generate(embedded, ["def f(x):\n"], max_new_tokens=3, record=True).trace
    occurring = {*trace.prompt(0), *trace.output(0), *trace.rows["target_top_ids"].ravel().tolist()}
    assert {int(token) for token in trace.meta["token_texts"]} >= occurring
    assert "".join(trace.text(token) for token in trace.prompt(0)[1:]) == "def f(x):\n"


def test_a_stopwatch_tells_the_time_that_passed_and_the_time_that_was_computed(monkeypatch):
    """Whole rounds alone. What other programs take counts in a record, not in the choice of K."""
    passed, computed = [0.0], [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: passed[0])
    monkeypatch.setattr(time, "thread_time", lambda: computed[0])
    stopwatch = Stopwatch(torch.device("cpu"))
    for phase in range(7):
        begin = stopwatch.mark()
        computed[0] += 0.001
        passed[0] += 0.001 + (0.050 if phase == 2 else 0.0)
        stopwatch.add(begin)
        passed[0] += 100.0  # of the consumer
    assert stopwatch.latest() == [pytest.approx([1, 1, 1, 1, 1])]
    assert stopwatch.milliseconds().dtype == np.float32
    np.testing.assert_allclose(stopwatch.milliseconds(), [[1, 1, 51, 1, 1]], rtol=1e-4)


def test_a_record_is_small(tmp_path):
    prompts = [[i + 1] * 100 for i in range(8)]
    run = {"strategy": "eqspec", "max_new_tokens": 32, "record": True}
    generate(make_pair("llama"), prompts, **run).trace.save(tmp_path / "run")
    assert (tmp_path / "run").stat().st_size < 1e6
