"""K chosen in each round: any sequence of K writes the same text, and `Auto` chooses well."""

import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, product
from operator import mul
from typing import Any

import numpy as np
import published
import pytest
import torch
from conftest import generate_one_by_one, in_turn, make_pair, make_prompts
from test_graphs import outputs, traced
from test_sampling import chi_square, make_tiny

import specviz as sv
from specviz.engine.draft_length import KEPT_TIMES, Auto, DraftLength, Spent, Times
from specviz.engine.graphs import PhaseGraphs
from specviz.engine.options import Options
from specviz.engine.run import make_run
from specviz.engine.state import State
from specviz.engine.strategies import STRATEGIES
from specviz.record.replay import Replay
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

NEW_TOKENS = 24
VALID_REPADDING = {"ones_mask": False, "draft_bonus": False}
DRAFTING = [
    sv.strategy(name, **(VALID_REPADDING if name == "repadding" else {}))
    for name, kind in STRATEGIES.items()
    if kind.drafts
]
RATES = (0.9, 0.7, 0.6, 0.5, 0.3, 0.2)
DRAFTERS: list[dict[str, Any]] = [
    {},
    {"drafter": "lookup"},
    {"drafter": sv.drafter("synthetic", rates=RATES)},
    {"levers": sv.Levers(keep_draft=False)},
    {"sampling": sv.SamplingParams(0.9, coupling="gumbel"), "seed": 11},
]


def named(value: Any) -> str:
    return getattr(value, "name", str(value))


class Forced(DraftLength):
    """K in a given order, repeated."""

    name = "forced"

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__(max(1, *order))
        self.order = list(order)
        self.rounds = 0
        self.learned: list[Spent] = []

    def choose(self, state: State) -> int:
        self.rounds += 1
        return self.order[(self.rounds - 1) % len(self.order)]

    def learn(self, spent: Spent) -> None:
        self.learned.append(spent)


def forced(seed: int) -> Forced:
    """Return K from 0 to 6 in random order, often 0 for several rounds."""
    rng = np.random.default_rng(seed)
    return Forced(np.repeat(rng.permutation([0, 0, 0, 1, 2, 3, 6]), rng.integers(1, 5, 7)).tolist())


def decoded(**options: Any) -> sv.Result:
    given = {"batch_size": 4, "max_new_tokens": NEW_TOKENS, "progress": False} | options
    return sv.generate(make_pair("llama"), make_prompts(), **given)


# ---- the text ----


@cache
def sampled_alone() -> list[list[int]]:
    return decoded(strategy="autoregressive", **DRAFTERS[-1]).tokens


@pytest.mark.sweep(34)
@pytest.mark.parametrize(
    "drafter",
    DRAFTERS,
    ids=["model", "lookup", "synthetic", "no draft K/V", "gumbel"],
)
@pytest.mark.parametrize("strategy", DRAFTING, ids=lambda strategy: strategy.name)
def test_any_sequence_of_k_writes_the_same_text(strategy: Any, drafter: Any) -> None:
    expected = generate_one_by_one("llama", torch.float32, NEW_TOKENS)
    if "sampling" in drafter:
        expected = sampled_alone()
    # Each strategy meets every batch size, each time with another drafter.
    place = DRAFTING.index(strategy) + DRAFTERS.index(drafter)
    batch_size = (1, 3, 8, 4)[place % 4]
    result = decoded(
        strategy=strategy, num_draft_tokens=forced(place), batch_size=batch_size, **drafter
    )
    assert result.tokens == expected, f"B={batch_size}"


@pytest.mark.sweep(6)
@pytest.mark.parametrize("order", [[0], [0] * 20 + [3], [6, 0], [1], [0, 0, 1]], ids=str)
def test_drafting_stops_and_goes_on(order: list[int]) -> None:
    expected = generate_one_by_one("gpt2", torch.float32, NEW_TOKENS)
    for strategy in ("inplace", "eqspec", "exspec"):
        depth = Forced(order)
        result = sv.generate(
            make_pair("gpt2"),
            make_prompts(),
            strategy=strategy,
            num_draft_tokens=depth,
            max_new_tokens=NEW_TOKENS,
            progress=False,
        )
        assert result.tokens == expected
        assert set(result.rows["drafted"]) == set(order[: len(result.rounds["batch"])])


@pytest.mark.slow
def test_the_draft_is_as_good_after_a_pause() -> None:
    """The draft reads what it missed, so its proposals are those of a run without a pause."""
    plain = decoded(num_draft_tokens=2, batch_size=1, record=True).trace
    paused = decoded(num_draft_tokens=Forced([0] * 7 + [2]), batch_size=1, record=True).trace
    assert plain is not None
    assert paused is not None
    proposals = {
        (r, n): drafts.tolist()
        for r, n, drafts in zip(
            *(plain.rows[name] for name in ("request", "length", "drafts")), strict=True
        )
    }
    rows, compared = paused.rows, 0
    for request, length, drafted, drafts in zip(
        rows["request"], rows["length"], rows["drafted"], rows["drafts"], strict=True
    ):
        if drafted and (request, length) in proposals:
            assert drafts.tolist() == proposals[request, length]
            compared += 1
    assert compared > 5


def test_what_was_missed_is_read_once_and_only_then() -> None:
    """The draft model reads a prompt that enters while K is 0 later, and all at once."""
    trace = decoded(num_draft_tokens=Forced([0] * 9 + [2] * 100), batch_size=10, record=True).trace
    assert trace is not None
    feeds = {
        name: column[trace.feeds["model"] == MODELS.index("draft")]
        for name, column in trace.feeds.items()
    }
    entering = feeds["phase"] == PHASES.index("schedule")
    # The first round cannot know yet that it will not draft.
    assert set(feeds["round"][entering]) == {0}
    first = feeds["round"][~entering].min()
    assert first == 9
    caught = ~entering & (feeds["round"] == first) & (feeds["step"] == 0)
    read = np.unique(
        np.stack([feeds["request"][caught], feeds["index"][caught]]), axis=1, return_counts=True
    )[1]
    assert (read == 1).all()
    assert 0 < caught.sum() <= 9 * 10


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "sampling", [sv.SamplingParams(0.8, coupling="gumbel"), None], ids=["gumbel", "greedy"]
)
def test_the_deterministic_mode_has_the_shape_of_the_largest_k(
    sampling: sv.SamplingParams | None,
) -> None:
    options = {"sampling": sampling, "seed": 3, "deterministic": True}
    expected = decoded(strategy="autoregressive", num_draft_tokens=6, **options)
    assert decoded(num_draft_tokens=Forced([3, 0, 6, 0, 0, 1]), **options).tokens == expected.tokens
    assert (
        decoded(num_draft_tokens="auto", **options).tokens
        == decoded(strategy="autoregressive", num_draft_tokens="auto", **options).tokens
    )


@pytest.mark.sweep(2)
@pytest.mark.parametrize("bonus", [True, False])
def test_under_rejection_the_distribution_stays(bonus: bool) -> None:
    """Compare 2000 rows with the exact distribution. K changes every round.

    Odds of a false failure: 1e-6 over seeds.
    """
    params = sv.SamplingParams(1.3)
    strategy = published.strategy("eqspec", bonus=bonus)
    options: dict[str, Any] = {
        "strategy": strategy,
        "batch_size": 1000,
        "max_new_tokens": 3,
        "sampling": params,
        "seed": 0,
    }
    rows = sv.generate(
        make_tiny(), [[1, 2]] * 2000, num_draft_tokens=Forced([1, 0, 2]), progress=False, **options
    ).tokens
    statistic, limit = chi_square(rows, params)
    assert statistic < limit


# ---- the record ----


@pytest.mark.sweep(18)
@pytest.mark.parametrize(
    ("strategy", "drafter"), in_turn(DRAFTING, ["model", "lookup"], every=2), ids=named
)
def test_a_record_with_changing_k(strategy: Any, drafter: str, tmp_path: Any) -> None:
    depth = Forced([2, 0, 0, 6, 1, 0])
    result = decoded(strategy=strategy, drafter=drafter, num_draft_tokens=depth, record=True)
    assert result.trace is not None
    result.trace.save(tmp_path / "run")
    trace = Trace.load(tmp_path / "run")
    assert sv.check_invariants(trace, deep=True, pair=make_pair("llama")) == []
    assert (trace.meta["num_draft_tokens"], trace.meta["num_draft_tokens_chosen"]) == (6, "forced")
    rows, k = trace.rows, np.array([depth.order[number % 6] for number in trace.rows["round"]])
    at_work = rows["gained"] > 0
    assert (rows["drafted"] == np.where(at_work, k, 0)).all()
    beyond = np.arange(6) >= k[:, None]
    for name, nothing in (
        ("drafts", -1),
        ("draft_top_ids", -1),
        ("target_logprob", np.nan),
        ("draft_logprob", np.nan),
    ):
        np.testing.assert_array_equal(rows[name][beyond], np.full_like(rows[name][beyond], nothing))
    assert (rows["drafts"][~beyond] >= 0).all()
    assert (rows["target_top_ids"][:, 0] >= 0).all()
    assert len(list(Replay(trace).frames())) == trace.num_rounds * len(PHASES)
    sv.step_through(trace)


def test_learn_gets_what_each_round_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    # A machine without other programs: what passes is what this thread computes.
    now = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(now) / 1000)
    monkeypatch.setattr(time, "thread_time", time.perf_counter)
    depth = Forced([2, 0, 0, 3])
    result = decoded(num_draft_tokens=depth, batch_size=3)
    rounds = len(result.rounds["batch"])
    assert len(depth.learned) == rounds
    for number, spent in enumerate(depth.learned):
        here = (result.rows["round"] == number) & (result.rows["gained"] > 0)
        assert (spent.rows, spent.num_draft_tokens) == (
            result.rounds["batch"][number],
            depth.order[number % 4],
        )
        assert list(spent.accepted) == result.rows["accepted"][here].tolist()
        ms = {name: result.rounds[f"{name}_ms"][number] for name in PHASES}
        assert spent.draft_ms == pytest.approx(ms["draft"], rel=1e-5)
        rest = sum(ms[name] for name in ("verify", "accept", "synchronise"))
        assert spent.rest_ms == pytest.approx(rest, rel=1e-5) or spent.rest_ms == pytest.approx(
            rest + ms["schedule"], rel=1e-5
        )
        assert not spent.cold
    paused = [spent.caught_up for spent in depth.learned if spent.num_draft_tokens == 3]
    assert min(paused[:-2]) >= 2
    assert all(spent.caught_up == 0 for spent in depth.learned if spent.num_draft_tokens == 0)


def test_learn_is_called_under_decode_too() -> None:
    depth = Forced([1, 0])
    events = sv.decode(make_pair("llama"), make_prompts(), num_draft_tokens=depth, max_new_tokens=6)
    assert (
        sum(event.phase == "synchronise" for event in events) == len(depth.learned) == depth.rounds
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        "eqspec",
        pytest.param(
            published.strategy("exspec", window=6, as_published=True),
            id="as published",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_phases_are_replayed_for_each_k(strategy: Any) -> None:
    depth = Forced([1, 0, 0, 2])
    run = make_run(
        make_pair("llama"),
        make_prompts(),
        Options(strategy=strategy, num_draft_tokens=depth, batch_size=3, max_new_tokens=NEW_TOKENS),
    )
    run.state.graphs = PhaseGraphs(lambda function: traced(run, function))
    assert outputs(run) == generate_one_by_one("llama", torch.float32, NEW_TOKENS)
    cold = [spent.cold for spent in depth.learned]
    assert cold[0]
    assert 0 < sum(cold) < len(cold) / 2


def test_times_of_captured_rounds_are_marked_cold() -> None:
    depth = Forced([1])
    run = make_run(
        make_pair("llama"),
        make_prompts(),
        Options(num_draft_tokens=depth, max_new_tokens=6),
    )
    for event in run.events():
        if event.phase == "verify" and event.round == 2:
            event.state.graphs.cold_calls += 1
    assert [number for number, spent in enumerate(depth.learned) if spent.cold] == [2]


# ---- what it chooses ----


@dataclass(frozen=True)
class World:
    """A machine and a pair of models.

    Attributes:
        step: ms of a draft step, by rows.
        rest: ms of the other phases, by tokens verified.
        acceptance: by position.
    """

    step: Callable[[int], float]
    rest: Callable[[int], float]
    acceptance: Sequence[float]

    def rates(self, rows: int) -> np.ndarray:
        """Return the expected tokens a ms for each K, (K + 1,)."""
        gains = np.array(list(accumulate(accumulate(self.acceptance, mul, initial=1.0))))
        return np.array(
            [
                rows * gain / (self.rest(rows * (k + 1)) + k * self.step(rows))
                for k, gain in enumerate(gains)
            ]
        )

    def play(
        self,
        auto: Auto,
        rows: int,
        rounds: int,
        noise: float = 0.05,
        seed: int = 0,
        capture_ms: float = 0.0,
    ) -> tuple[float, list[int]]:
        """Return the share of the best fixed K's rate that `auto` reaches, and the K it chose.

        Times scatter, and one in a hundred is far too long.

        Args:
            capture_ms: extra time of the first two rounds of each K, as with CUDA graphs. It does
                not count in the rate.
        """
        rng = np.random.default_rng(seed)
        gains = self.rates(rows)
        best = gains.max()
        behind = 0
        chosen: list[int] = []
        used = Counter[int]()
        spent_ms = 0.0
        gained = 0.0

        def scatter() -> float:
            return float(np.exp(rng.normal(0, noise))) * (3 if rng.random() < 0.01 else 1)

        for number in range(rounds):
            k = auto.decide(rows, behind * rows, [64] * rows)
            caught_up = behind * rows if k else 0
            draft = k * self.step(rows) + (self.step(caught_up) if caught_up else 0)
            rest = self.rest(rows * (k + 1))
            right = rng.random((rows, len(self.acceptance))) < self.acceptance
            accepted = right[:, :k].cumprod(1).sum(1)
            slow = 5 if number == 0 else 1
            used[k] += 1
            cold = capture_ms > 0 and used[k] <= 2
            extra = capture_ms if cold else 0.0
            auto.learn(
                Spent(
                    rows,
                    k,
                    caught_up,
                    accepted.tolist(),
                    draft * scatter() * slow,
                    rest * scatter() * slow + extra,
                    cold,
                )
            )
            spent_ms += draft + rest
            gained += gains[k] * (rest + k * self.step(rows))
            chosen.append(k)
            behind = 0 if k else behind + 1
        return gained / spent_ms / best, chosen


STEPS: dict[str, tuple[Callable[[int], float], Callable[[int], float]]] = {
    # A CPU: more tokens take more time.
    "linear": (lambda rows: 0.35 + 0.05 * rows, lambda tokens: 2 + 0.45 * tokens),
    # A GPU that replays graphs: only bandwidth counts.
    "free": (lambda rows: 0.45, lambda tokens: 5 + 0.012 * max(0, tokens - 60)),
    # A GPU that waits for Python: a draft step costs nearly as much as the rest.
    "launches": (lambda rows: 2.5, lambda tokens: 9.0),
    "stairs": (lambda rows: 0.3, lambda tokens: 3.0 if tokens < 8 else 3 + 0.5 * (tokens - 7)),
}
ACCEPTANCE = {
    "low": [0.35] * 8,
    "middling": [0.68, 0.66, 0.64, 0.62, 0.6, 0.6, 0.6, 0.6],
    "high": [0.92] * 8,
    "none": [0.02] * 8,
}


@pytest.mark.sweep(18)
@pytest.mark.parametrize(
    ("cost", "acceptance", "rows"), in_turn(STEPS, ACCEPTANCE, [1, 4, 8, 16], every=4)
)
def test_auto_loses_at_most_three_per_cent(cost: str, acceptance: str, rows: int) -> None:
    """Compare with the best fixed K, K = 0 included, over 600 rounds.

    The costs of trying and of catching up count. Seeds are fixed.
    """
    world = World(*STEPS[cost], ACCEPTANCE[acceptance])
    reached = [world.play(Auto(), rows, 600, seed=seed)[0] for seed in range(3)]
    assert np.mean(reached) >= 0.97, reached


@pytest.mark.slow
def test_a_short_run_on_a_noisy_machine() -> None:
    """64 prompts of 64 tokens on two shared cores: few rounds, whose times scatter by 18 %.

    Seeds are fixed.
    """
    # By B: ms of a draft step, of a forward, and of each token in it.
    measured = {
        1: (1.4, 5.6, 0.27),
        4: (1.65, 6.6, 0.145),
        8: (2.1, 9.0, 0.11),
        16: (2.9, 12.5, 0.115),
    }
    reached = []
    for (rows, (step, forward, token)), acceptance in product(
        measured.items(), ("high", "middling")
    ):
        world = World(
            lambda rows, step=step: step,
            lambda tokens, a=forward, b=token: a + b * tokens,
            ACCEPTANCE[acceptance],
        )
        reached += [
            world.play(Auto(), rows, max(80, 1200 // rows), noise=0.18, seed=seed)[0]
            for seed in range(8)
        ]
    assert np.mean(reached) >= 0.97, reached
    assert np.quantile(reached, 0.1) >= 0.93, reached


def test_nothing_is_drafted_where_it_cannot_pay() -> None:
    for acceptance, rows in (("none", 1), ("none", 8), ("low", 16), ("middling", 16)):
        _, chosen = World(*STEPS["linear"], ACCEPTANCE[acceptance]).play(Auto(), rows, 300)
        assert np.mean(np.array(chosen[20:]) == 0) > 0.9, acceptance


def test_as_much_is_drafted_as_pays() -> None:
    world = World(*STEPS["free"], ACCEPTANCE["high"])
    for most in (1, 3, 8):
        _, chosen = world.play(Auto(most), 4, 300)
        assert np.bincount(chosen[50:]).argmax() == most
        assert max(chosen) == most


@pytest.mark.parametrize("cost", STEPS)
def test_what_is_captured_uses_up_no_trial(cost: str) -> None:
    """Captures take as long as hundreds of rounds.

    If they counted as cost of trying, no other K would be tried afterwards.
    """
    world = World(*STEPS[cost], ACCEPTANCE["middling"])
    assert (
        np.mean([world.play(Auto(), 4, 600, seed=seed, capture_ms=1000)[0] for seed in range(3)])
        >= 0.96
    )


def test_acceptance_counts_the_drafts_that_were_judged() -> None:
    """A draft that a selector left out says nothing of its position."""
    auto = Auto(3)
    for accepted, verified in (([1, 1], [1, 1]), ([0, 2], [1, 2])):
        auto.learn(Spent(2, 3, 0, accepted, draft_ms=1.0, rest_ms=1.0, verified=verified))
    first, second, third = auto.acceptance()
    assert first < second, "one draft was rejected, at the first position"
    assert third == second, "no third draft was judged"


def test_it_stops_when_drafts_are_no_longer_accepted() -> None:
    """Acceptance falls to nothing after 300 rounds, and K to 0.

    The way back is not tested. It takes long, because trying must stay cheap.
    """
    auto, rows = Auto(), 4
    shares = []
    for acceptance in ("high", "none"):
        _, chosen = World(*STEPS["linear"], ACCEPTANCE[acceptance]).play(auto, rows, 300)
        shares.append(np.mean(np.array(chosen[150:]) > 0))
    assert shares[0] > 0.9
    assert shares[1] < 0.1


def test_what_was_missed_is_a_debt() -> None:
    """Reading a hundred missed tokens pays only if many rounds are left."""
    auto = Auto()
    World(*STEPS["linear"], ACCEPTANCE["middling"]).play(auto, 1, 100)
    draft_ms = 2 * 0.4 + 100 * 0.5  # half a ms for each missed token
    for _ in range(KEPT_TIMES):
        auto.learn(Spent(1, 2, 100, [2], draft_ms, 2 + 0.45 * 3))
    assert auto.decide(1, 0, [64]) > 0
    assert auto.decide(1, 100, [4]) == 0
    assert auto.decide(1, 100, [5000]) > 0


def test_no_more_is_drafted_than_rows_can_use() -> None:
    """K is the largest there is, or one less than the tokens left: the target adds its own.

    Drafts cost little here and are nearly always accepted.
    """
    auto, rows = Auto(), 4
    World(*STEPS["free"], ACCEPTANCE["high"]).play(auto, rows, 100)
    assert [auto.decide(rows, 0, [left] * rows) for left in (1, 2, 4, 64)] == [0, 1, 3, 8]
    # One short row does not lower K for the others.
    assert auto.decide(rows, 0, [2, 64, 64, 64]) == 8


def test_a_fixed_k_is_a_draft_length_that_never_changes() -> None:
    assert (
        decoded(num_draft_tokens=DraftLength(3)).rows["drafted"].tolist()
        == decoded(num_draft_tokens=3).rows["drafted"].tolist()
    )


def test_auto_works_without_options() -> None:
    result = decoded(num_draft_tokens="auto", record=True)
    assert result.tokens == generate_one_by_one("llama", torch.float32, NEW_TOKENS)
    assert (result.meta["num_draft_tokens"], result.meta["num_draft_tokens_chosen"]) == (8, "auto")
    assert 0 in result.rows["drafted"][result.rows["gained"] > 0]
    assert result.trace is not None
    assert sv.check_invariants(result.trace) == []
    plain = decoded(strategy="autoregressive", num_draft_tokens="auto")
    assert (plain.meta["num_draft_tokens"], plain.meta["num_draft_tokens_chosen"]) == (0, "fixed")


# ---- times ----


def make_times(**measured: list[float]) -> Times:
    times = Times()
    for name, each in measured.items():
        for ms in each:
            times.add(int(name.removeprefix("of_")), ms)
    return times


def drawn(times: Times, tokens: int) -> np.ndarray:
    """Return 400 draws of the time of `tokens`."""
    rng = np.random.default_rng(0)
    return np.array([times.draw(rng)(tokens) for _ in range(400)])


def test_a_size_that_was_not_measured_lies_on_the_line_of_the_others() -> None:
    times = make_times(of_1=[10.0] * 8, of_9=[18.0] * 8)
    for tokens in (1, 4, 9, 20):
        assert np.median(drawn(times, tokens)) == pytest.approx(9 + tokens, rel=0.02)


def test_neither_a_forward_nor_a_token_costs_less_than_nothing() -> None:
    falling = make_times(of_1=[20.0] * 4, of_8=[10.0] * 4)
    assert drawn(falling, 100).min() > 5
    steep = make_times(of_4=[1.0] * 4, of_8=[9.0] * 4)
    assert drawn(steep, 1).min() > 0


def test_draws_scatter_less_the_more_was_measured() -> None:
    few = make_times(of_4=[10.0])
    many = make_times(of_4=[10.0] * KEPT_TIMES)
    assert drawn(few, 4).std() > 1.5 * drawn(many, 4).std() > 0


def test_a_size_that_was_measured_often_outweighs_the_line() -> None:
    times = make_times(of_1=[10.0] * 16, of_2=[10.0] * 16, of_3=[30.0] * 16, of_4=[10.0] * 16)
    assert np.median(drawn(times, 3)) > 25


def test_old_times_and_outliers_do_not_count() -> None:
    times = make_times(of_4=[10.0, 500.0])
    assert times.usual(4) == 10.0
    for _ in range(KEPT_TIMES):
        times.add(4, 20.0)
    assert (times.usual(4), times.count(4), times.count(5)) == (20.0, KEPT_TIMES, 0)


# ---- bad options ----


class TooFar(DraftLength):
    def choose(self, state: State) -> int:
        return self.most + 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("fast", "num_draft_tokens must be an int >= 1 or 'auto', got 'fast'; pass for instance 5"),
        (0, "num_draft_tokens must be an int >= 1, got 0; pass 1 or more"),
        (2.5, "num_draft_tokens must be an int >= 1, got 2.5"),
        (None, "num_draft_tokens must be an int >= 1, got None"),
        (object.__new__(DraftLength), "num_draft_tokens.most must be an int >= 0, got None"),
        (TooFar(3), "the K of a round must be 0 to 3, got 4; let `choose` of"),
    ],
    ids=["fast", "zero", "half", "none", "depth-without-most", "too-far"],
)
def test_bad_num_draft_tokens_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        decoded(num_draft_tokens=value)


def test_the_largest_k_has_to_fit_the_models() -> None:
    with pytest.raises(
        ValueError, match="num_draft_tokens=8 it needs 257 positions and the models have 256"
    ):
        sv.generate(
            make_pair("llama"),
            [[1] * 200],
            num_draft_tokens="auto",
            max_new_tokens=48,
            progress=False,
        )
    with pytest.raises(ValueError, match="rates has 6 entries for num_draft_tokens=8"):
        decoded(num_draft_tokens="auto", drafter=sv.drafter("synthetic", rates=RATES))
