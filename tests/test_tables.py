"""Acceptance tables: drafts at every position as a plain loop finds them, and replays that are the
engine's rounds.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_pair, make_prompts
from safetensors.numpy import load_file, save_file
from tiny_heads import pair_with

import specviz as sv
from specviz import metrics
from specviz.generation.tables import make_table
from specviz.simulation import Policy, Simulation
from specviz.simulation.tables import AcceptanceTable, replay
from specviz.zoo.heads import unroll

DEPTH = 4
BUDGET = 12
STRATEGIES = {
    "autoregressive": sv.strategy("autoregressive"),
    "inplace": sv.strategy("inplace"),
    "eqspec": sv.strategy("eqspec"),
    "eqspec, static": sv.strategy("eqspec", refill=False),
    "exspec": sv.strategy("exspec", window=6),
    "exspec, wait": sv.strategy("exspec", window=6, fallback="wait"),
}


@functools.cache
def tiny() -> sv.Pair:
    return make_pair("llama", dtype=torch.float64)


@functools.cache
def table() -> AcceptanceTable:
    return make_table(tiny(), make_prompts(), DEPTH, max_new_tokens=BUDGET, progress=False)


@functools.cache
def table_of(kind: str) -> AcceptanceTable:
    return make_table(
        pair_with("llama", kind, torch.float64), make_prompts(), DEPTH, drafter=kind,
        max_new_tokens=BUDGET, progress=False,
    )  # fmt: skip


@torch.inference_mode()
def drafted(pair: sv.Pair, kind: str, committed: list[int]) -> list[tuple[int, float, float]]:
    """Draft `DEPTH` tokens after `committed`, reading everything again each time.

    Each is the token, its log q and the entropy.
    """
    found: list[tuple[int, float, float]] = []
    for step in range(DEPTH):
        drafts = [token for token, _, _ in found]
        if kind == "model":
            logits = pair.draft(torch.tensor([committed + drafts]), use_cache=False).logits[0, -1]
        else:
            head = pair.heads[kind]
            tokens = torch.tensor([[*committed, *drafts, *[0] * DEPTH]])
            states = pair.target.base_model(tokens, output_hidden_states=True).hidden_states
            start = torch.tensor([[len(committed) - 1]])
            steps = unroll(head, tokens, head.select(states), start, step + 1)
            logits = steps[step].logits[0, 0]
        distribution = torch.distributions.Categorical(logits=logits)
        log_q = float(distribution.logits.max())
        found.append((int(logits.argmax()), log_q, float(distribution.entropy())))
    return found


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", ["model", "eagle3", "clover", "medusa"])
def test_drafts_at_every_position_are_those_of_a_plain_loop(kind: str) -> None:
    pair = tiny() if kind == "model" else pair_with("llama", kind, torch.float64)
    found = table() if kind == "model" else table_of(kind)
    assert found.meta["drafter"] == kind
    texts = sv.generate(pair, make_prompts(), max_new_tokens=BUDGET, progress=False).tokens
    for number in (0, 1, 2, 3, 5):
        prompt, text = make_prompts()[number], texts[number]
        for j in range(len(text)):
            place = found.offsets[number] + j
            drafts, log_q, entropy = zip(*drafted(pair, kind, prompt + text[:j]), strict=True)
            assert found.drafts[place].tolist() == list(drafts)
            np.testing.assert_allclose(found.log_q[place], log_q, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(found.entropy[place], entropy, rtol=1e-4, atol=1e-6)
            same = [a == b for a, b in zip(drafts, text[j:], strict=False)]
            assert found.accepted[place] == (same.index(False) if False in same else len(same))
    assert len(found.accepted) == sum(map(len, texts))
    assert 0 < found.accepted.mean() < DEPTH or kind != "model"


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
@pytest.mark.parametrize("selector", ["everything", sv.selector("tetris", extra=2)])
def test_a_replay_of_a_heads_table_is_the_engines_run(kind: str, selector: Any) -> None:
    trace = sv.generate(
        pair_with("llama", kind, torch.float64), make_prompts(), drafter=kind, selector=selector,
        num_draft_tokens=2, batch_size=3, max_new_tokens=BUDGET, record=True, progress=False,
    ).trace  # fmt: skip
    check_same_rounds(trace, table_of(kind))


@pytest.mark.parametrize(
    ("drafter", "said"),
    [
        ("lookup", "selector="),
        ("tree", "drafter must propose chains, got one of trees; pass another one"),
        ("eagle3", "drafter='eagle3' needs a head"),
    ],
)
def test_drafters_without_such_a_table_are_refused(drafter: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        make_table(tiny(), make_prompts()[:2], 2, drafter=drafter, progress=False)


@pytest.mark.sweep(21)
@pytest.mark.parametrize("num_draft_tokens", [1, 3, DEPTH])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_replay_is_the_engines_run_round_by_round(name: str, num_draft_tokens: int) -> None:
    trace = sv.generate(
        tiny(), make_prompts(), strategy=STRATEGIES[name], num_draft_tokens=num_draft_tokens,
        batch_size=3, max_new_tokens=BUDGET, record=True, progress=False,
    ).trace  # fmt: skip
    check_same_rounds(trace, table())


SELECTORS = {
    "largest": sv.selector("tetris", extra=2, score="largest"),
    "entropy": sv.selector("tetris", extra=2, score="entropy"),
    "waits one round": sv.selector("tetris", extra=2, max_wait=1),
    "waits two rounds": sv.selector("tetris", extra=2, max_wait=2, score="entropy"),
    "threshold": sv.selector("threshold", at_least=0.5),
    "threshold, largest": sv.selector("threshold", at_least=0.5, score="largest"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("selector", "name"),
    [(name, "inplace") for name in SELECTORS]
    + [("waits one round", "eqspec"), ("waits two rounds", "exspec")],
)
def test_a_replay_of_a_selector_is_the_engines_run(
    selector: str, name: str, embedded: sv.Pair
) -> None:
    trace = sv.generate(
        embedded, sv.load_prompts(limit=12), strategy=STRATEGIES[name],
        selector=SELECTORS[selector], num_draft_tokens=2, batch_size=4, max_new_tokens=24,
        record=True, progress=False,
    ).trace  # fmt: skip
    found = check_same_rounds(trace, of_embedded(embedded))
    assert trace is not None
    verified = trace.rows["verified"][trace.rows["gained"] > 0]
    assert len(set(verified.tolist())) > 1, "the same number of drafts in every row"
    assert found.rounds["verified_tokens"].sum() == verified.sum()


@functools.cache
def of_embedded(pair: sv.Pair) -> AcceptanceTable:
    prompts = sv.load_prompts(limit=12)
    return make_table(pair, prompts, 5, max_new_tokens=24, progress=False)


def check_same_rounds(trace: sv.Trace | None, table: AcceptanceTable) -> Simulation:
    assert trace is not None
    found = replay(table, Policy.of(trace.meta))
    rounds, expected = found.rounds, metrics.rounds(trace)
    assert rounds["rows"].tolist() == expected["batch_rows"].tolist()
    assert rounds["gained_tokens"].tolist() == expected["gained_tokens"].tolist()
    assert rounds["slots"].tolist() == expected["cache_slots"].tolist()
    assert rounds["decision"].tolist() == expected["decision"].tolist()
    own = metrics.requests(trace).sort_values("request")
    assert found.own_rounds[0].tolist() == own["rounds"].tolist()
    assert found.finished_s.max() == len(expected), "a round takes a second"
    return found


def test_requests_are_drawn_from_the_texts() -> None:
    policy = Policy(num_draft_tokens=3)
    found = replay(table(), policy, requests=50, replicas=4, seed=1)
    drawn = found.workload
    assert found.finished_s.shape == drawn.prompt_tokens.shape == (4, 50)
    pairs = set(zip(drawn.prompt_tokens.ravel(), drawn.new_tokens.ravel(), strict=True))
    assert pairs == set(zip(table().prompt_tokens, table().new_tokens, strict=True))
    again = replay(table(), policy, requests=50, replicas=4, seed=1)
    assert (found.finished_s == again.finished_s).all()
    other = replay(table(), policy, requests=50, replicas=4, seed=2)
    assert (found.own_rounds != other.own_rounds).any()


def test_a_text_needs_fewer_rounds_with_more_drafts() -> None:
    rounds = [
        replay(table(), Policy(num_draft_tokens=k)).own_rounds[0] for k in range(1, DEPTH + 1)
    ]
    for fewer, more in itertools.pairwise(rounds):
        assert (more <= fewer).all()
    assert rounds[-1].sum() < rounds[0].sum()


def small() -> AcceptanceTable:
    """Two texts, of three tokens and of one; two drafts."""
    return AcceptanceTable(
        prompt_tokens=np.array([4, 2], np.int32),
        offsets=np.array([0, 3, 4]),
        drafts=np.arange(8, dtype=np.int32).reshape(4, 2),
        log_q=np.full((4, 2), np.log(0.5), np.float32),
        entropy=np.ones((4, 2), np.float32),
        accepted=np.array([2, 0, 1, 0], np.int8),
        meta={"target": "hand-made"},
    )


def test_a_saved_table_is_the_same(tmp_path: Path) -> None:
    path = small().save(tmp_path / "table.safetensors")
    loaded = AcceptanceTable.load(path)
    assert loaded.meta == {"target": "hand-made"}
    for name in ("prompt_tokens", "offsets", "drafts", "log_q", "entropy", "accepted"):
        assert getattr(loaded, name).dtype == getattr(small(), name).dtype
        np.testing.assert_array_equal(getattr(loaded, name), getattr(small(), name))


def rewrite(path: Path, without: str = "", **header: str) -> None:
    """Save the table's columns again, but one, with another header."""
    columns = {name: values for name, values in load_file(path).items() if name != without}
    save_file(columns, path, header)


VERSION = '{"format_version": %d, "meta": {}}'


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "holds no acceptance table"),
        (lambda path: path.write_bytes(b"text"), "holds no acceptance table"),
        (rewrite, "holds no acceptance table"),
        (lambda path: rewrite(path, "drafts", specviz_table=VERSION % 1), "holds no acceptance"),
        (lambda path: rewrite(path, specviz_table=VERSION % 9), "has format version 9"),
    ],
)
def test_a_file_that_holds_no_table_is_refused(
    damage: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    path = small().save(tmp_path / "table.safetensors")
    damage(path)
    with pytest.raises(ValueError, match=rf"table\.safetensors: {message}.*; ") as caught:
        AcceptanceTable.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accepted": np.zeros(4)}, "accepted must be a int8 array of 1 dimensions"),
        ({"offsets": np.array([0, 4])}, "offsets must have one entry more than prompt_tokens"),
        ({"offsets": np.array([0, 4, 4])}, "offsets must rise from 0 to the number"),
        ({"offsets": np.array([0, 3, 5])}, "offsets must rise from 0 to the number"),
        ({"log_q": np.zeros((4, 3), np.float32)}, "drafts, log_q and entropy must be 4 x"),
        ({"prompt_tokens": np.array([0, 1], np.int32)}, "prompt_tokens must be at least 1"),
        ({"accepted": np.array([3, 0, 0, 0], np.int8)}, "accepted must be from 0 to the drafts"),
        ({"accepted": np.array([0, 0, 2, 0], np.int8)}, "accepted must be from 0 to the drafts"),
        ({"accepted": np.array([-1, 0, 0, 0], np.int8)}, "accepted must be from 0 to the drafts"),
        ({"drafts": np.full((4, 2), -2, np.int32)}, "drafts must be token ids, or -1"),
        ({"log_q": np.full((4, 2), 0.1, np.float32)}, "log_q must be logarithms of probabilities"),
        ({"entropy": np.full((4, 2), -0.1, np.float32)}, "entropy must be finite and at least 0"),
        ({"entropy": np.full((4, 2), np.inf, np.float32)}, "entropy must be finite and at least 0"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(small(), **changes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_table(tiny(), [[1]], 0), "depth must be an int >= 1, got 0"),
        (lambda: make_table(tiny(), [[1]], 1000), "depth must be at most 127, got 1000"),
        (lambda: make_table(tiny(), []), r"prompts=\[\] is empty"),
        (lambda: replay(small(), Policy(num_draft_tokens=3)), "policy must draft at most as many"),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
