"""Which drafts are verified: the choice against brute force, and what it does to sampled text."""

import itertools
import math
import re
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from conftest import example, generate, generate_one_by_one, make_pair, make_prompts
from exact_selection import ROWS, K, distance, selected
from hypothesis import given
from hypothesis import strategies as st

import specviz as sv
from specviz.engine.drafters import Draft
from specviz.engine.options import Options
from specviz.engine.sampling import Greedy, SamplingParams
from specviz.engine.selectors import (
    SCORES,
    SELECTORS,
    Everything,
    Selector,
    Threshold,
    largest,
    score_drafts,
)


def test_the_registered_selectors_are_listed() -> None:
    assert sv.selectors()["selector"].tolist() == list(SELECTORS)
    assert sv.selector("tetris", extra=3) == SELECTORS["tetris"](extra=3)
    with pytest.raises(ValueError, match=r"selector='random' is unknown; choose one of everything"):
        sv.selector("random")


falling = st.lists(
    st.lists(st.sampled_from([0.0, -0.5, -1.0, -2.0, -math.inf]), min_size=3, max_size=3).map(
        lambda values: sorted(values, reverse=True)
    ),
    min_size=1,
    max_size=4,
)


@given(falling, st.integers(0, 14), st.data())
def test_the_largest_scores_are_those_of_brute_force(
    rows: list[list[float]], capacity: int, data: st.DataObject
) -> None:
    """Ties included: a row's earlier drafts first, and never more than the capacity."""
    going_on = [data.draw(st.booleans()) for _ in rows]
    scores = torch.tensor(rows)
    usable = torch.tensor(going_on)[:, None].expand(-1, 3)
    found = largest(scores, usable, capacity).tolist()

    def chance(counts: tuple[int, ...]) -> float:
        picked = [math.exp(rows[i][j]) for i, count in enumerate(counts) for j in range(count)]
        return math.fsum(picked)

    widths = [range(4) if goes_on else range(1) for goes_on in going_on]
    room = min(capacity, 3 * sum(going_on))
    possible = [counts for counts in itertools.product(*widths) if sum(counts) == room]
    assert sum(found) == room
    assert tuple(found) in possible
    assert chance(tuple(found)) == pytest.approx(max(map(chance, possible)))
    more = largest(scores, usable, capacity + 1).tolist()
    assert all(a >= b for a, b in zip(more, found, strict=True)), "more room takes no draft back"


def test_scores_never_rise_along_a_row_and_only_one_kind_reads_the_draft() -> None:
    generator = torch.Generator().manual_seed(0)
    log_q = torch.randn(50, 4, 6, generator=generator).log_softmax(-1)
    tokens = torch.randint(0, 6, (50, 4), generator=generator)
    others = tokens.clone()
    others[:, 2] = (tokens[:, 2] + 1) % 6
    for kind in SCORES:
        scores = score_drafts(log_q, tokens, kind)
        assert (scores.diff(dim=1) <= 1e-6).all()
        reads = not torch.equal(scores[:, 2], score_drafts(log_q, others, kind)[:, 2])
        assert reads == sv.selector("tetris", score=kind).foresees


def test_a_score_that_is_not_a_number_is_verified_last() -> None:
    scores = torch.tensor([[math.nan, math.nan], [-3.0, -4.0]])
    every = torch.ones(2, 2, dtype=torch.bool)
    assert largest(scores, every, 2).tolist() == [0, 2]
    assert largest(scores, every, 3).tolist() == [1, 2]


class Rows(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.rows)


def stand_in(limits: list[int], n: list[int], chooser: Any = None) -> Any:
    """As much of a state as a selector reads."""
    batch = Rows(
        limits=torch.tensor(limits),
        n=torch.tensor(n),
        rows=[SimpleNamespace(finished=a <= b) for a, b in zip(limits, n, strict=True)],
        working=sum(a > b for a, b in zip(limits, n, strict=True)),
    )
    return SimpleNamespace(batch=batch, chooser=chooser or Greedy())


def test_a_threshold_stops_a_row_where_the_draft_is_unsure() -> None:
    q = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.8, 0.2]], [[0.5, 0.5], [0.9, 0.1], [0.9, 0.1]]])
    tokens = torch.zeros(2, 3, dtype=torch.long)
    draft = Draft(tokens, q.log())

    def lengths(at_least: float, limits: list[int]) -> list[int]:
        chosen = Threshold(at_least).choose(stand_in(limits, [3, 3]), draft, 6)
        assert chosen.lengths is not None
        return list(chosen.lengths.tolist())

    assert lengths(0.7, [9, 9]) == [1, 0]
    assert lengths(0.55, [9, 9]) == [3, 0]
    assert lengths(0.0, [9, 3]) == [3, 0], "a row that has finished verifies nothing"


# ---- exact enumeration: is the text of a selected draft distributed as the target's? ----


@pytest.mark.parametrize("score", SCORES)
def test_scores_that_foresee_change_the_text_and_the_others_do_not(score: str) -> None:
    """Two rows of two drafts over three tokens, two of four drafts verified; all cases summed."""

    distances = [selected(score, seed) for seed in range(6)]
    if sv.selector("tetris", score=score).foresees:
        assert np.median(distances) > 0.01
    else:
        assert max(distances) < 1e-12


@pytest.mark.parametrize("score", ["chosen", "largest"])
def test_a_threshold_by_the_drafts_own_q_changes_the_text(score: str) -> None:
    def select(log_q: torch.Tensor, tokens: torch.Tensor) -> list[int]:
        chooser = SimpleNamespace(log_q=lambda logits: logits)
        draft = Draft(tokens, log_q)
        state = stand_in([9] * ROWS, [1] * ROWS, chooser)
        chosen = Threshold(0.4, score=score).choose(state, draft, K * ROWS)
        assert chosen.lengths is not None
        return list(chosen.lengths.tolist())

    distances = [distance(select, seed) for seed in range(6)]
    assert (np.median(distances) > 0.01) == (score == "chosen")
    assert score == "chosen" or max(distances) < 1e-12


def test_a_run_that_would_be_biased_is_refused_and_named_if_it_is_asked_for() -> None:
    pair = make_pair("llama")
    run: dict[str, Any] = {"max_new_tokens": 6, "record": True}
    rejection = SamplingParams(1.0)
    for name in ("tetris", "threshold"):
        with pytest.raises(ValueError, match=f"selector='{name}' decides by a draft"):
            generate(pair, make_prompts(), selector=name, sampling=rejection, **run)
        biased = sv.selector(name, valid=False)
        result = generate(pair, make_prompts(), selector=biased, sampling=rejection, **run)
        assert result.trace is not None
        assert result.trace.meta["valid"] is False
        found = sv.check_invariants(result.trace)
        assert {(each.rule, each.round) for each in found} == {("foresight", 0)}
        safe = sv.selector(name, score="largest")
        honest = generate(pair, make_prompts(), selector=safe, sampling=rejection, **run).trace
        assert honest is not None
        assert honest.meta["valid"] is True
        assert sv.check_invariants(honest) == []
    gumbel = SamplingParams(1.0, coupling="gumbel")
    assert generate(pair, make_prompts(), selector="tetris", sampling=gumbel, **run).meta["valid"]


class Foreseeing(Everything):
    """Says of itself that its scores read the drafts, as one of a user's own might."""

    name: ClassVar[str] = "foreseeing"

    @property
    def foresees(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("selector", "remedy", "safe"),
    [
        (sv.selector("tetris"), 'pass score="largest" or "entropy"', {"score": "entropy"}),
        (sv.selector("threshold"), 'pass score="largest"', {"score": "largest"}),
        (Foreseeing(), "let its scores read q and not the token that was drawn", None),
    ],
    ids=["tetris", "threshold", "one's own"],
)
def test_the_remedy_is_one_that_the_selector_takes(
    selector: Selector, remedy: str, safe: dict[str, Any] | None
) -> None:
    expected = f'; {remedy}, or pass coupling="gumbel", or valid=False to see the bias'
    with pytest.raises(ValueError, match=re.escape(expected)):
        Options(selector=selector, sampling=SamplingParams(1.0))
    if safe is not None:
        Options(selector=sv.selector(selector.name, **safe), sampling=SamplingParams(1.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selector": 3}, r"selector must be a name or a Selector, got 3; use specviz.selector"),
        ({"selector": "tetris", "drafter": "lookup"}, "needs the draft's logits, and drafter="),
        ({"selector": "tetris", "strategy": "repadding"}, "pass draft_bonus=False"),
    ],
)
def test_what_cannot_be_selected_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(make_pair("llama"), make_prompts(), max_new_tokens=4, **options)


@pytest.mark.slow
def test_a_selector_of_ones_own_needs_no_registration() -> None:
    """The example of docs/extend.md."""
    cautious = example("Cautious")(ahead=1)
    result = generate(make_pair("llama"), make_prompts(), selector=cautious, record=True,
                      max_new_tokens=24)  # fmt: skip
    assert result.tokens == generate_one_by_one()
    assert result.trace is not None
    assert result.trace.meta["selector"] == "cautious"
    assert len(set(result.trace.rows["verified"].tolist())) > 1
    assert sv.check_invariants(result.trace) == []


@dataclass(frozen=True)
class Remembering(Everything):
    """Keeps something between rounds, by request."""

    most: int = 3
    seen: dict[int, int] = field(default_factory=dict, compare=False)

    name: ClassVar[str] = "remembering"

    def choose(self, state: Any, draft: Draft, capacity: int) -> Draft:
        for row in state.batch.rows:
            self.seen[row.request.index] = row.accepted
        b, k = draft.tokens.shape
        return replace(draft, lengths=torch.full((b,), min(self.most, k)))


def test_what_a_selector_keeps_is_no_option_of_the_record() -> None:
    selector = Remembering()
    result = generate(make_pair("llama"), make_prompts(), selector=selector, record=True,
                      max_new_tokens=6)  # fmt: skip
    assert result.trace is not None
    assert result.trace.meta["selector_options"] == {"valid": True, "most": 3}
    assert len(selector.seen) == len(make_prompts())


def test_scores_are_of_the_distribution_that_was_drawn_from() -> None:
    """After temperature, top-k and top-p, for both couplings."""
    logits = torch.randn(5, 3, 11, generator=torch.Generator().manual_seed(0))
    for coupling in ("rejection", "gumbel"):
        params = SamplingParams(0.5, top_k=6, top_p=0.9, coupling=coupling)
        q = params.chooser(0).log_q(logits).exp()
        assert torch.allclose(q.double(), params.distribution(logits), atol=1e-6)
    assert torch.equal(Greedy().log_q(logits), logits.log_softmax(-1))


@pytest.mark.parametrize("coupling", ["rejection", "gumbel"])
def test_recorded_scores_are_of_the_warped_distribution(coupling: Any) -> None:
    """A score is the sum of log q after temperature and top-p, not of the raw logits."""
    params = SamplingParams(0.7, top_p=0.9, coupling=coupling)
    score = "chosen" if coupling == "gumbel" else "largest"
    run: dict[str, Any] = {
        "selector": sv.selector("tetris", score=score), "sampling": params, "num_draft_tokens": 2,
        "max_new_tokens": 8,
    }  # fmt: skip
    trace = generate(make_pair("llama"), make_prompts(), record=True, **run).trace
    assert trace is not None
    wanted = []
    for event in sv.decode(make_pair("llama"), make_prompts(), **run):
        if event.phase != "draft":
            continue
        raw, tokens = event.draft.logits, event.draft.tokens
        for row in range(len(tokens)):
            before = 0.0
            for j in range(tokens.shape[1]):
                q = params.distribution(raw[row, j])
                chosen = before + math.log(q[tokens[row, j]])
                wanted.append(chosen if score == "chosen" else before + math.log(q.max()))
                before = chosen
    assert trace.rows["scores"].ravel().tolist() == pytest.approx(wanted, abs=1e-5)


def test_rows_that_have_finished_claim_no_capacity() -> None:
    """In a static batch they stay; what may be verified falls with the rows that go on."""
    static = sv.strategy("eqspec", refill=False)
    trace = generate(
        make_pair("llama"), make_prompts(), strategy=static, selector="tetris",
        num_draft_tokens=2, batch_size=5, max_new_tokens=[3, 20, 6, 20, 9] * 2, record=True,
    ).trace  # fmt: skip
    assert trace is not None
    working = np.bincount(trace.rows["round"], weights=trace.rows["gained"] > 0)
    assert trace.rounds["capacity"].tolist() == (2 * working).tolist()
    assert len(set(working.tolist())) > 2
    assert trace.rows["verified"][trace.rows["gained"] == 0].sum() == 0
