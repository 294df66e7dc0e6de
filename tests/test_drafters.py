"""Drafters: prompt lookup, synthetic acceptance, and user-defined ones."""

import copy
import functools
import math
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from conftest import (
    NEW_TOKENS,
    check_refusal,
    decoded,
    example,
    generate,
    generate_one_by_one,
    make_pair,
    make_prompts,
)

import specviz as sv
from specviz import metrics
from specviz.engine.drafters import DRAFTERS, Draft, Drafter, Task
from specviz.engine.drafters.chains import ModelDrafter, SyntheticDrafter
from specviz.engine.names import COUPLINGS
from specviz.engine.state import State
from specviz.engine.strategies import STRATEGIES
from specviz.record.replay import Replay
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace
from specviz.views.charts import (
    acceptance_by_position,
    acceptance_map,
    pick_ragged_round,
    stage_bars,
)

DRAFTING = sorted(name for name, kind in STRATEGIES.items() if kind().valid and kind.drafts)
RATES = (0.9, 0.7, 0.7, 0.4, 0.2, 0.1, 0.1, 0.0)
ODDS = 1e-6  # of a false failure of each random test below, over seeds


def synthetic(rates: object = RATES) -> Drafter:
    return sv.drafter("synthetic", rates=rates)


def tokens_of(row: Any) -> list[int]:
    return [*row.request.prompt, *row.output]


def test_the_drafters_are_listed():
    frame = sv.drafters()
    heads = ["eagle3", "mtp", "dflash", "medusa", "clover"]
    names = ["model", "lookup", "synthetic", "tree", "static_tree", *heads]
    assert list(frame["drafter"]) == names == list(DRAFTERS)
    assert frame["description"].str.len().min() > 10
    assert list(frame["options"]) == [
        "",
        "max_ngram=3, min_ngram=1",
        "rates (required)",
        "base='model', depth=4, width=2, children=2",
        "base='model', "  # of static_tree
        "paths=((0,), (0, 0), (1,), (0, 0, 0), (0, 1), (1, 0), (0, 0, 0, 0), (2,)), "
        "siblings='likeliest', judged_by=None, valid=True",
        "reread=True",
        "reread=True",
        "",
        "",
        "",
    ]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("strategy", DRAFTING)
def test_the_text_is_the_targets_own(strategy, pair, prompts):
    """The two drafters share the batch sizes and Ks, each strategy in another way."""
    for number, (batch_size, k) in enumerate(((3, 1), (8, 2), (1, 5), (4, 5), (3, 8))):
        drafter = (sv.drafter("lookup"), synthetic())[(number + DRAFTING.index(strategy)) % 2]
        run = {"num_draft_tokens": k, "batch_size": batch_size, "max_new_tokens": NEW_TOKENS}
        result = generate(pair, prompts, strategy=strategy, drafter=drafter, **run)
        assert result.tokens == generate_one_by_one(), f"{drafter}, B={batch_size}, K={k}"


@pytest.mark.parametrize("drafter", [sv.drafter("lookup"), synthetic()], ids=str)
def test_autoregressive_decoding_uses_no_drafter(drafter):
    result = decoded("autoregressive", drafter=drafter)
    assert result.tokens == generate_one_by_one()
    assert result.meta["drafter"] == "none"


# --- prompt lookup ---


def look_up(tokens: list[int], num_draft_tokens: int, max_ngram: int, min_ngram: int) -> list[int]:
    """Return what the drafter promises, in plain loops."""
    n = len(tokens)
    for size in range(max_ngram, min_ngram - 1, -1):
        # Most recent first. An occurrence ends before the row's own end.
        for end in range(n - 1, size - 1, -1):
            if tokens[end - size : end] == tokens[n - size :]:
                return [tokens[end + j % (n - end)] for j in range(num_draft_tokens)]
    return [tokens[-1]] * num_draft_tokens


@pytest.mark.parametrize(
    ("tokens", "options", "expected"),
    [
        ([1, 2, 3, 4, 5, 1, 2, 3], {}, [4, 5, 1, 2]),
        # The later of two occurrences. Its continuation reaches the row's end.
        ([7, 8, 1, 7, 8, 2, 7, 8], {}, [2, 7, 8, 2]),
        # The longer occurrence, though a shorter one is nearer.
        ([5, 1, 2, 9, 2, 4, 4, 1, 2], {}, [9, 2, 4, 4]),
        ([5, 1, 2, 9, 2, 4, 4, 1, 2], {"max_ngram": 1}, [4, 4, 1, 2]),
        ([1, 2, 1], {}, [2, 1, 2, 1]),
        ([1, 2, 3], {}, [3, 3, 3, 3]),  # no match
        ([1, 2, 1], {"min_ngram": 2}, [1, 1, 1, 1]),
        ([4], {"max_ngram": 5, "min_ngram": 5}, [4, 4, 4, 4]),
    ],
)
def test_lookup_by_hand(tokens, options, expected, pair):
    assert look_up(tokens, 4, **{"max_ngram": 3, "min_ngram": 1, **options}) == expected
    drafter = sv.drafter("lookup", **options)
    run = sv.decode(pair, [tokens], drafter=drafter, num_draft_tokens=4, max_new_tokens=1)
    (draft,) = [event.draft for event in run if event.phase == "draft"]
    assert draft.tokens.tolist() == [expected]
    assert draft.logits is None


@pytest.mark.parametrize(("max_ngram", "min_ngram"), [(3, 1), (2, 2), (6, 3), (1, 1)])
def test_lookup_equals_plain_loops(max_ngram, min_ngram, pair):
    """Compare every round. Rows have different lengths and come and go.

    Prompts use few ids, so there are many matches.
    """
    generator = torch.Generator().manual_seed(5)
    prompts = [
        torch.randint(50, 53, (n,), generator=generator).tolist()
        for n in (1, 2, 3, 5, 9, 30, 60, 100)
    ]
    drafter = sv.drafter("lookup", max_ngram=max_ngram, min_ngram=min_ngram)
    run = {"strategy": "eqspec", "batch_size": 3, "max_new_tokens": 12}
    compared = 0
    for event in sv.decode(pair, prompts, drafter=drafter, num_draft_tokens=5, **run):
        if event.phase == "draft":
            expected = [
                look_up(tokens_of(row), 5, max_ngram, min_ngram) for row in event.state.batch.rows
            ]
            assert event.draft.tokens.tolist() == expected
            compared += len(expected)
    assert compared > 50


@pytest.mark.sweep(5)
@pytest.mark.parametrize("strategy", DRAFTING)
def test_a_run_without_a_draft_model_is_recorded_and_plotted(strategy, tmp_path):
    result = decoded(strategy, drafter="lookup", max_new_tokens=8)
    result.trace.save(tmp_path / "run")
    trace = Trace.load(tmp_path / "run")
    told = trace.meta["drafter"], trace.meta["drafter_options"]
    assert told == ("lookup", {"max_ngram": 3, "min_ngram": 1})
    assert trace.meta["kv_bytes_per_slot"]["draft"] == 0
    for table in (trace.feeds, trace.moves):
        assert set(table["model"]) <= {MODELS.index("target")}
    assert (trace.rows["draft_top_ids"] == -1).all()
    assert np.isnan(trace.rows["draft_logprob"]).all()
    assert np.isfinite(trace.rows["target_logprob"]).all()
    frames = list(Replay(trace).frames())
    assert len(frames) == trace.num_rounds * len(PHASES)
    assert all((frame.draft.token == -1).all() for frame in frames)
    assert result.summary["drafter"].item() == "lookup"
    assert (result.stages["draft_ms"] > 0).all()
    assert len(metrics.rounds(trace)) == trace.num_rounds
    for figure in (
        acceptance_map(trace),
        acceptance_by_position(trace),
        stage_bars({strategy: trace}),
    ):
        assert figure.data
    assert sv.step_through(trace, round=pick_ragged_round(trace), phase="accept").film


# --- synthetic acceptance ---


@functools.cache
def endless_pair() -> sv.Pair:
    """Return the tiny Llama pair without EOS, so that all rows take part in as many rounds."""
    pair = sv.Pair(*copy.deepcopy((make_pair("llama").target, make_pair("llama").draft)))
    pair.target.generation_config.eos_token_id = None
    return pair


K, ROUNDS, PROMPTS = 5, 10, 64


@functools.cache
def accepted_drafts() -> np.ndarray:
    """Return accepted drafts of each prompt's first rounds, (PROMPTS, ROUNDS).

    Budgets are large enough for all these rounds, so the rounds are not a selection.
    """
    prompts = [[1 + i % 96, 1 + i // 96] for i in range(PROMPTS)]
    run = {"num_draft_tokens": K, "batch_size": 32, "max_new_tokens": ROUNDS * (K + 1)}
    result = generate(endless_pair(), prompts, drafter=synthetic(), **run)
    entries = metrics.rows(result).groupby("request")["accepted"]
    return np.array([accepted.to_numpy()[:ROUNDS] for _, accepted in entries])


@pytest.mark.slow
def test_drafts_are_accepted_at_the_given_rates():
    """Chernoff's bound for N draws at rate r: P(|KL(measured, r)| > x) <= 2 exp(-N x).

    Odds of a false failure over all K rates: ODDS.
    """
    accepted = accepted_drafts().ravel()
    for j, rate in enumerate(RATES[:K]):
        measured = (accepted > j).mean()
        divergence = sum(
            m * math.log(m / r) for m, r in ((measured, rate), (1 - measured, 1 - rate)) if m > 0
        )
        assert len(accepted) * divergence < math.log(2 * K / ODDS), (
            f"position {j + 1}: {measured:.3f} instead of {rate}"
        )


def test_rows_and_rounds_are_independent():
    """Check variance and correlations of a row's accepted drafts, within 5 standard deviations.

    Odds of a false failure: below 6e-7 for each, in the normal approximation. A schedule of
    smallest variance would have a variance of at most 1/4. Random numbers that rows share would
    have a correlation of 1.
    """
    at_least = np.array(RATES[:K])
    mean = at_least.sum()
    chances = -np.diff([1.0, *at_least, 0.0])  # of 0, 1, ..., K
    deviations = np.arange(K + 1) - mean
    variance = float(chances @ deviations**2)
    fourth = float(chances @ deviations**4)
    off = accepted_drafts() - mean
    assert variance > 1  # far from 1/4
    assert abs((off**2).mean() - variance) < 5 * math.sqrt((fourth - variance**2) / off.size)
    two_prompts = off[::2] * off[1::2]
    two_rounds = off[:, ::2] * off[:, 1::2]
    for products in (two_prompts, two_rounds):
        assert abs(products.mean()) < 5 * variance / math.sqrt(products.size)


def test_extreme_rates_hold_exactly(pair):
    """At rate 1 all K are accepted, at 0 none, even in a round cut short by a budget or EOS."""
    for rates, expected in (((1, 1, 1), 3), ((0, 0, 0), 0), ((1, 0, 0), 1)):
        result = generate(
            pair, make_prompts(), drafter=synthetic(rates), num_draft_tokens=3, max_new_tokens=12
        )
        assert set(result.rows["accepted"]) == {expected}


def test_rates_hold_under_strategies_that_write_wrong_text(pair):
    """A right draft is what the target predicts in the same run, even if that run is faulty."""
    for strategy in (
        sv.strategy("masking", positions="column"),
        sv.strategy("eqspec", break_invariant="positions"),
    ):
        run = {"strategy": strategy, "drafter": synthetic((1, 1, 0)), "num_draft_tokens": 3}
        result = generate(pair, make_prompts(), max_new_tokens=12, **run)
        assert set(result.rows["accepted"]) == {2}


@pytest.mark.slow
def test_acceptance_depends_only_on_seed_prompt_and_index(pair, prompts):
    """The seed changes at least one of the 60 or so draws that two runs share.

    Odds of a false failure: far below ODDS.
    """

    def accepted(seed: int, strategy: str, batch_size: int) -> dict[tuple[int, int], int]:
        run = {"strategy": strategy, "batch_size": batch_size, "max_new_tokens": 12, "seed": seed}
        rows = generate(pair, prompts, drafter=synthetic(), **run).rows
        return {
            (int(r), int(n)): int(a)
            for r, n, a in zip(rows["request"], rows["length"], rows["accepted"], strict=True)
        }

    first = accepted(0, "inplace", 8)
    for strategy, batch_size in (("eqspec", 3), ("exspec", 2), ("masking", 1)):
        assert accepted(0, strategy, batch_size) == first
    other = accepted(10**40, "inplace", 8)
    assert any(first[place] != other[place] for place in first.keys() & other.keys())


def test_a_wrong_proposal_is_never_eos_and_never_right(pair):
    for event in sv.decode(
        pair, make_prompts(), drafter=synthetic([0.5] * 5), max_new_tokens=NEW_TOKENS
    ):
        if event.phase == "draft":
            drafts = event.draft.tokens
            assert event.draft.logits is None
        elif event.phase == "accept":
            for row, proposed, emitted in zip(
                event.state.batch.rows, drafts.tolist(), event.outcome.emitted.tolist(), strict=True
            ):
                assert row.accepted in (0, 5)  # one draw for all positions of a row
                assert row.accepted or not set(proposed) & set(pair.eos_token_ids)
                assert (proposed[0] == emitted[0]) == bool(row.accepted)


def test_the_draft_model_reads_the_proposals():
    """K forwards a round, the first over two tokens. Its K/V is that of the row's tokens.

    The target's running ahead is not recorded.
    """
    trace = decoded("eqspec", drafter=synthetic(), max_new_tokens=12).trace
    feeds = {
        name: values[trace.feeds["phase"] == PHASES.index("draft")]
        for name, values in trace.feeds.items()
    }
    assert set(feeds["model"]) == {MODELS.index("draft")}
    columns = [feeds[name].tolist() for name in ("round", "row", "step")]
    steps = list(zip(*columns, strict=True))
    rows = list(zip(trace.rows["round"].tolist(), trace.rows["row"].tolist(), strict=True))
    assert sorted(steps) == sorted((*entry, step) for entry in rows for step in (0, 0, 1, 2, 3))
    drafts = dict(zip(rows, trace.rows["drafts"].tolist(), strict=True))
    for where, token in zip(steps, feeds["token"].tolist(), strict=True):
        assert where[2] == 0 or token == drafts[where[:2]][where[2] - 1]
    verified = trace.feeds["phase"] == PHASES.index("verify")
    assert set(trace.feeds["model"][verified]) == {MODELS.index("target")}


def test_running_ahead_takes_no_phases_time(pair, monkeypatch):
    clock = [0.0]
    prepare = SyntheticDrafter.prepare
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def slow(self: SyntheticDrafter, task: Task, state: State) -> torch.Tensor:
        clock[0] += 100.0
        return prepare(self, task, state)

    monkeypatch.setattr(SyntheticDrafter, "prepare", slow)
    result = generate(pair, [[1, 2], [3]], drafter=synthetic(), max_new_tokens=8)
    assert clock[0] == 100.0 * len(result.rounds["batch"]) > 0
    assert result.stages["total_ms"].sum() == 0


def test_synthetic_acceptance_under_sampling(pair, prompts):
    """Only under the Gumbel coupling is the target's choice known before the verification."""
    rejection, gumbel = (
        sv.SamplingParams(temperature=0.8, coupling=coupling) for coupling in COUPLINGS
    )
    check_refusal(
        lambda: sv.decode(pair, prompts, drafter=synthetic(), sampling=rejection),
        "",
        "cannot know what coupling='rejection' will accept; pass sampling=None or coupling=",
    )
    run = {"sampling": gumbel, "max_new_tokens": 12, "num_draft_tokens": 3, "seed": 3}
    result = generate(pair, prompts, drafter=synthetic((1, 1, 0)), **run)
    assert set(result.rows["accepted"]) == {2}
    assert result.tokens == generate(pair, prompts, strategy="autoregressive", **run).tokens


# --- bad options ---

BAD_RATES = (0.9, "0.9", [1.1], [-0.1], [True], ["0.9"], [math.nan], {0.9: 1}, list(range(1000)))
REFUSED = [
    (
        "lookup",
        {"ngram": 3},
        "drafter 'lookup' takes no option 'ngram'; its options are max_ngram, min_ngram",
    ),
    *(
        ("lookup", {name: value}, f"{name} must be an int >= 1, got {value!r}; ")
        for name in ("max_ngram", "min_ngram")
        for value in (0, 1.5, "3", True)
    ),
    ("lookup", {"max_ngram": 2, "min_ngram": 3}, "min_ngram=3 is larger than max_ngram=2; "),
    ("synthetic", {}, 'drafter "synthetic" needs rates; '),
    ("synthetic", {"rates": []}, 'drafter "synthetic" needs rates; '),
    (
        "synthetic",
        {"rate": [1]},
        "drafter 'synthetic' takes no option 'rate'; its options are rates",
    ),
    *(("synthetic", {"rates": value}, "rates must be numbers from 0 to 1") for value in BAD_RATES),
    ("synthetic", {"rates": [0.5, 0.6]}, "rates must not rise, got [0.5, 0.6]: "),
]


@pytest.mark.parametrize(("name", "options", "begins"), REFUSED)
def test_options_that_cannot_be_used(name, options, begins):
    check_refusal(lambda: sv.drafter(name, **options), begins)


@pytest.mark.parametrize("call", [sv.generate, sv.decode])
def test_too_few_rates_are_refused_before_a_model_runs(call, pair, monkeypatch):
    monkeypatch.setattr(type(pair.target), "forward", None)
    check_refusal(
        lambda: call(pair, [[1, 2]], drafter=synthetic([0.5, 0.5]), num_draft_tokens=3),
        "rates has 2 entries for num_draft_tokens=3; pass one for each, or lower it",
    )
    check_refusal(
        lambda: call(pair, [[1, 2]], drafter="synthetic"), 'drafter "synthetic" needs rates'
    )


@pytest.mark.parametrize(
    "rates",
    [np.array([0.5, 0.25]), torch.tensor([0.5, 0.25]), (0.5, 0.25), [np.float32(0.5), 0.25, 0]],
)
def test_rates_may_come_as_any_sequence(rates):
    assert synthetic(rates).options["rates"][:2] == (0.5, 0.25)


# --- user-defined drafters ---


def test_a_user_defined_drafter(prompts):
    """The example of docs/extend.md."""
    result = decoded(drafter=example("Bigrams")())
    assert result.tokens == generate_one_by_one()
    assert (result.meta["drafter"], result.meta["drafter_options"]) == ("bigrams", {})
    after = {token: later for prompt in prompts for token, later in pairwise(prompt)}
    for drafts, tokens in zip(
        result.trace.rows["drafts"].tolist(), result.trace.rows["emitted"].tolist(), strict=True
    ):
        assert all(second == after.get(first, first) for first, second in pairwise(drafts)), tokens


@pytest.mark.parametrize("strategy", ["inplace", "masking"])
def test_a_user_defined_drafter_of_trees(strategy):
    """The example of docs/extend.md."""
    result = decoded(strategy, drafter=example("Followers")())
    assert result.tokens == generate_one_by_one()
    parents = result.trace.rows["parents"]
    assert (np.diff(parents, axis=1) == 0).any(), "some drafts are siblings"


class Proposing(Drafter):
    """Returns what a mistaken drafter of a user's own might."""

    name: ClassVar[str] = "proposing"
    made: ClassVar[Any] = None

    def propose(self, state: Any, num_draft_tokens: int) -> Any:
        return self.made(len(state.batch), num_draft_tokens)


@pytest.mark.parametrize("made", [torch.ones(2, 1).long(), torch.ones(2, 3)])
def test_what_is_no_draft_is_refused(made, pair, monkeypatch):
    monkeypatch.setattr(Proposing, "made", staticmethod(lambda b, k: Draft(made)))
    run = {"drafter": Proposing(), "num_draft_tokens": 3, "max_new_tokens": 4}
    begins = f"Draft.tokens must be int64 of shape (2, 3), got {made.dtype} of shape "
    check_refusal(lambda: generate(pair, [[1], [2]], **run), begins)


def test_a_drafter_has_to_propose(pair):
    class Silent(Drafter):
        name: ClassVar[str] = "silent"

    with pytest.raises(NotImplementedError, match="drafter='silent' must override `propose`"):
        generate(pair, [[1]], drafter=Silent(), max_new_tokens=4)


@dataclass(frozen=True)
class WithModule(ModelDrafter):
    """Hold a module and a number."""

    name: ClassVar[str] = "with_module"
    module: torch.nn.Module | None = None
    width: int = 3


def test_options_of_a_drafter_are_recorded_without_its_modules(pair):
    head = WithModule(torch.nn.Linear(2, 2))
    meta = generate(pair, [[1, 2]], drafter=head, max_new_tokens=2, record=True).trace.meta
    assert meta["drafter_options"] == {"width": 3}


def test_lookup_finds_what_repeats(embedded: sv.Pair) -> None:
    prompt = (
        "import os\n\ndef first(path):\n    return os.path.join(path, 'a')\n\n"
        "def second(path):\n    return os.path.join("
    )
    result = sv.generate(embedded, [prompt], drafter="lookup", max_new_tokens=16, progress=False)
    assert result.summary["mean_acceptance_length"].item() > 1.2
    assert (
        result.tokens
        == sv.generate(
            embedded, [prompt], strategy="autoregressive", max_new_tokens=16, progress=False
        ).tokens
    )
