"""Statistics of a server's requests: what is read, the tables made of them, and their replays.

The engine takes the place of the server where the truth must be known at every position.
"""

import functools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_pair, make_prompts

import specviz as sv
from specviz.cli.main import main as cli
from specviz.generation.tables import make_table
from specviz.servers import (
    ServedRequest,
    ServerLog,
    acceptance_tables,
    measured_acceptance,
    read_log,
)
from specviz.servers.traffic import replay_traffic, unanswered
from specviz.simulation import AcceptanceTable, Policy, Tetris, Workload, replay, simulate
from specviz.simulation.tables import UNIT

DATA = Path(__file__).parent / "data" / "servers"
K = 3
BUDGET = 24


@functools.cache
def tiny() -> sv.Pair:
    return make_pair("llama", dtype=torch.float64)


@functools.cache
def run() -> sv.Result:
    return sv.generate(
        tiny(), make_prompts(), num_draft_tokens=K, max_new_tokens=BUDGET, record=True,
        progress=False,
    )  # fmt: skip


@functools.cache
def truth() -> AcceptanceTable:
    return make_table(tiny(), make_prompts(), K, max_new_tokens=BUDGET, progress=False)


@functools.cache
def logged() -> ServerLog:
    """What a server would say of the run: a text begins behind the first token of an answer."""
    requests = []
    for number, (prompt, text) in enumerate(zip(run().prompts, run().tokens, strict=True)):
        rows = run().trace.rows
        own = (rows["request"] == number) & (rows["gained"] > 0)
        accepted = tuple(rows["accepted"][own].tolist())
        histogram = tuple(accepted.count(count) for count in range(K + 1))
        drafted = (K,) * len(accepted)
        requests.append(
            ServedRequest(
                histogram, sum(drafted), len(prompt) - 1, len(text) + 1, accepted, drafted
            )
        )  # fmt: skip
    return ServerLog(tuple(requests), 0)


def test_the_bounds_hold_the_truth_and_are_the_truth_where_they_meet():
    bounds = acceptance_tables(logged())
    assert bounds.left_out == 0
    assert bounds.low.prompt_tokens.tolist() == truth().prompt_tokens.tolist()
    assert bounds.low.offsets.tolist() == truth().offsets.tolist()
    low, high, accepted = bounds.low.accepted, bounds.high.accepted, truth().accepted
    assert (low <= accepted).all()
    assert (accepted <= high).all()
    known = low == high
    assert bounds.known <= known.mean()
    assert 0.5 < known.mean() < 1
    assert (accepted[~known] > low[~known]).any()
    assert (accepted[~known] < high[~known]).any()


@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "exspec"])
def test_a_replay_at_the_servers_own_k_is_its_run(strategy):
    policy = Policy(strategy, 4, K, window=8)
    wanted = replay(truth(), policy).summary()
    for table in (acceptance_tables(logged()).low, acceptance_tables(logged()).high):
        assert replay(table, policy).summary().equals(wanted)


@pytest.mark.parametrize("strategy", ["inplace", "exspec"])
@pytest.mark.parametrize("num_draft_tokens", [1, 2])
def test_replays_at_a_smaller_k_bracket_the_truth(strategy, num_draft_tokens):
    policy = Policy(strategy, 4, num_draft_tokens, window=8)
    bounds = acceptance_tables(logged())
    rounds = [
        replay(table, policy).own_rounds.sum() for table in (bounds.high, truth(), bounds.low)
    ]
    assert rounds[0] <= rounds[1] <= rounds[2]
    assert rounds[2] - rounds[0] < 0.2 * rounds[1]


def test_a_table_of_a_log_has_no_q_and_says_so(tmp_path):
    low = acceptance_tables(logged()).low
    policy = Policy("inplace", 4, 1, selector=Tetris(1))
    with pytest.raises(ValueError, match="selector must do without q"):
        replay(low, policy)
    low.save(tmp_path / "table")
    again = AcceptanceTable.load(tmp_path / "table")
    assert replay(again, Policy("inplace", 4, K)).own_rounds.sum() > 0


def test_positions_by_hand():
    """K = 2: a round of 2, one of 0, one of 1, and a last one that the text's end cuts."""
    request = ServedRequest((1, 1, 2), 8, 5, 8, (2, 0, 1, 2), (2, 2, 2, 2))
    bounds = acceptance_tables(ServerLog((request,), 0))
    # 3 + 1 + 2 + 3 tokens are logged; 7 are left of 8 behind the first one.
    assert bounds.low.accepted.tolist() == [2, 1, 0, 0, 1, 0, 1]
    # Behind a round that accepted all: at most one more than at the next position.
    assert bounds.high.accepted.tolist() == [2, 2, 1, 0, 1, 0, 1]
    assert bounds.known == pytest.approx(5 / 7)
    assert bounds.low.prompt_tokens.tolist() == [6]


def test_requests_whose_rounds_do_not_make_up_the_text_are_left_out():
    whole = ServedRequest((1, 1), 2, 5, 4, (0, 1), (1, 1))
    # A token was decoded without a draft, somewhere.
    gap = ServedRequest((1, 1), 2, 5, 5, (0, 1), (1, 1))
    unordered = ServedRequest((1, 1), 2, 5, 4)
    bounds = acceptance_tables(ServerLog((whole, gap, unordered), 0))
    assert bounds.left_out == 2
    assert bounds.low.accepted.tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="log must hold the rounds of a request in order, got 2"):
        acceptance_tables(ServerLog((gap, unordered), 0))


def test_histograms_become_probabilities_and_a_smaller_k_cuts_them():
    log = ServerLog((ServedRequest((1, 2, 1), 8), ServedRequest((0, 0, 4), 8)), 0)
    np.testing.assert_allclose(
        measured_acceptance(log).probabilities, [[0.25, 0.5, 0.25], [0, 0, 1]]
    )
    np.testing.assert_allclose(measured_acceptance(log, 1).probabilities, [[0.25, 0.75], [0, 1]])


def test_answers_of_vllm():
    log = read_log(DATA / "vllm.jsonl")
    assert log.without == 1
    summary, detailed = log.requests
    assert (summary.histogram, summary.rounds, summary.drafted_tokens) == ((39, 1, 0, 3), 43, 129)
    assert summary.accepted is None
    assert (summary.prompt_tokens, summary.new_tokens) == (11, 54)
    assert detailed.accepted == (3, 0, 1, 3, 0)
    assert detailed.drafted == (3, 3, 3, 3, 3)
    assert acceptance_tables(log).left_out == 1


def test_answers_of_sglang():
    log = read_log(DATA / "sglang.jsonl")
    assert [request.histogram for request in log.requests] == [
        (11, 14, 11, 4, 0, 3),
        (1, 0, 1, 0),  # the server leaves out that no round accepted three
        (1, 0, 1, 0),
    ]
    assert [request.new_tokens for request in log.requests] == [106, 4, 4]
    assert [request.prompt_tokens for request in log.requests] == [20, 9, 7]


def test_records_of_aiperf():
    log = read_log(DATA / "aiperf.jsonl")
    assert log.without == 1
    pooled, ordered = log.requests
    assert (pooled.histogram, pooled.prompt_tokens) == ((34, 22, 19, 16, 15, 22), 512)
    assert pooled.new_tokens == 410
    assert (ordered.accepted, ordered.new_tokens) == ((2, 1), 6)
    assert ordered.histogram == (0, 1, 1)


def changed(folder, line, places):
    """Write one line of a log with other values at these places, and return its path."""
    name, _, number = line.partition(" ")
    entry = json.loads((DATA / f"{name}.jsonl").read_text().splitlines()[int(number)])
    for place, value in places.items():
        *parents, last = place.split()
        functools.reduce(dict.get, parents, entry)[last] = value
    path = folder / "log.jsonl"
    path.write_text(json.dumps(entry))
    return path


OF_VLLM = "metrics speculative_decoding "
OF_SGLANG = "sglext spec_tokens_details "
LENGTHS = ("usage prompt_tokens", "usage completion_tokens", f"{OF_VLLM}num_draft_tokens")
INPUT, OUTPUT = (f"metrics {name}_sequence_length value" for name in ("input", "output"))


@pytest.mark.parametrize(
    ("line", "places", "why"),
    [
        ("vllm 1", {f"{OF_VLLM}num_spec_steps": 4}, "does not add up"),
        ("vllm 1", {f"{OF_VLLM}num_accepted_draft_tokens": 8}, "does not add up"),
        ("vllm 1", {f"{OF_VLLM}acceptance_histogram": [2, -1, 0, 2]}, "counts >= 0"),
        ("vllm 1", {f"{OF_VLLM}acceptance_histogram": "many"}, "counts >= 0"),
        ("vllm 1", {f"{OF_VLLM}acceptance_histogram": {"a": 1}}, "invalid literal"),
        ("vllm 1", {f"{OF_VLLM}acceptance_histogram": {"1000000000": 1}}, "more than 127 drafts"),
        ("vllm 1", {f"{OF_VLLM}per_step_accepted": [3, 0, 1, 3]}, "do not add up"),
        ("vllm 1", {f"{OF_VLLM}per_step_accepted": [3, 0, 1, 9, 0]}, "do not add up"),
        ("vllm 1", {f"{OF_VLLM}per_step_drafted": [2, 3, 3, 3, 4]}, "do not add up"),
        ("vllm 1", {f"{OF_VLLM}num_draft_tokens": None}, "counts >= 0"),
        *(("vllm 1", {name: 10**12}, "at most 16777216") for name in LENGTHS),
        *(("vllm 1", {name: 10**400}, "at most 16777216") for name in LENGTHS),
        *(("aiperf 0", {name: math.inf}, "cannot be used") for name in (INPUT, OUTPUT)),
        *(("aiperf 0", {name: 1e300}, "cannot be used") for name in (INPUT, OUTPUT)),
        ("sglang 0", {f"{OF_SGLANG}spec_num_proposed_drafts": 43 * 128}, "more than 127 drafts"),
    ],
)
def test_statistics_that_contradict_each_other_or_fit_no_table_are_refused(
    tmp_path, line, places, why
):
    with pytest.raises(ValueError, match=f"line 1 of .*log.jsonl: the statistics .*{why}"):
        read_log(changed(tmp_path, line, places))


def test_a_log_that_is_refused_is_a_misuse(tmp_path, capsys):
    path = changed(tmp_path, "aiperf 0", {INPUT: math.inf})
    assert cli(["simulate", "--log", str(path)]) == 2
    assert capsys.readouterr().err.startswith("specviz simulate: line 1 of ")


def test_a_negative_length_of_aiperf_is_unknown(tmp_path):
    (request,) = read_log(changed(tmp_path, "aiperf 0", {INPUT: -3, OUTPUT: -3})).requests
    assert (request.prompt_tokens, request.new_tokens) == (None, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "says nothing of drafts"),
        ('{"metrics": {}}\n', "says nothing of drafts"),
        ("<html>\n", "line 1 of .* is not JSON"),
        ("[1]\n", "line 1 of .* must be an object"),
        ('{"metrics": {"speculative_decoding": 3}}', "cannot be used"),
        ('{"metrics": 3}', "cannot be used"),
    ],
)
def test_files_that_are_no_logs_are_refused(tmp_path, text, why):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=why):
        read_log(path)


def policies(names: tuple[str, ...], drafts: list[int]) -> list[Policy]:
    found = [Policy("autoregressive", 4)]
    return found + [Policy(name, 4, k, window=16) for name in names for k in drafts]


def test_policies_are_compared_at_both_ends():
    asked = policies(("inplace", "eqspec", "exspec"), [1, 2, 3, 9])
    table, found = replay_traffic(logged(), asked)
    assert found["requests"] == len(logged().requests)
    assert (
        table["policy"].tolist()
        == ["autoregressive"] + ["inplace"] * 3 + ["eqspec"] * 3 + ["exspec:window=16"] * 3
    )
    plain = table.iloc[0]
    assert plain["tokens_per_round_low"] == plain["tokens_per_round_high"] == 1
    own = table[table["num_draft_tokens"] == K].iloc[0]
    gained = run().summary["mean_acceptance_length"][0]
    tokens = sum(map(len, run().tokens))
    rounds = sum(request.rounds for request in logged().requests)
    assert own["tokens_per_round_low"] == own["tokens_per_round_high"]
    assert own["tokens_per_round_low"] == pytest.approx(tokens / rounds)
    assert own["tokens_per_round_low"] == pytest.approx(gained, abs=0.3)
    assert (table["tokens_per_round_low"] <= table["tokens_per_round_high"]).all()
    with pytest.raises(ValueError, match="num_draft_tokens must have a K that the log drafted"):
        replay_traffic(logged(), policies(("inplace",), [9]))


def test_a_log_without_order_draws_the_rounds_of_a_request():
    log = read_log(DATA / "sglang.jsonl")
    table, _ = replay_traffic(log, [Policy("autoregressive", 1), Policy("inplace", 1, 3)])
    drawn = Workload.given([20, 9, 7], [105, 3, 3], measured_acceptance(log), seed=0)
    wanted = simulate(drawn, Policy("inplace", 1, 3), UNIT).own_rounds.sum()
    assert table["tokens_per_round_low"][1] == pytest.approx(111 / wanted)
    assert table["rounds_high"][0] == 111


def test_what_a_log_cannot_answer_is_said():
    said = " ".join(unanswered(logged(), 5))
    for words in ("TETRIS", "K above 3", "beyond its own drafts", "served at once", "Sampled"):
        assert words in said
    said = " ".join(unanswered(read_log(DATA / "sglang.jsonl"), 3))
    assert "order of rounds" in said
    assert "K above" not in said
    assert "16.7% of the drafts" in " ".join(
        unanswered(ServerLog((ServedRequest((1, 2, 1, 0), 10),), 0), 3)
    )  # fmt: skip


def test_the_command_prints_times_for_a_pair(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["simulate", "--log", str(DATA / "vllm.jsonl"), "--num-draft-tokens", "1", "3"]
    command += ["--batch-sizes", "2", "--shapes", "qwen3-8b/0.6b", "--out", "found.csv"]
    assert cli(command) == 0
    said = capsys.readouterr().out
    assert "speedup_high" in said
    assert "This log cannot answer:\n- TETRIS" in said
    conditions = json.loads(Path("found.json").read_text())
    assert (conditions["requests"], conditions["left_out"]) == (2, 1)


def test_a_log_is_not_replaced_with_what_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = (DATA / "vllm.jsonl").read_bytes()
    Path("requests.json").write_bytes(content)
    assert cli(["simulate", "--log", "requests.json", "--out", "requests.csv"]) == 2
    assert "requests.json' would be replaced" in capsys.readouterr().err
    assert Path("requests.json").read_bytes() == content
