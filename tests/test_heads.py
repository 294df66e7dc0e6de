"""Draft heads as drafters: the text stays the target's, and drafts are those of the head."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import CLASSES, check_refusal, generate, in_turn, make_pair, make_prompts
from test_draft_length import Forced
from test_sampling import COPIES, PROMPT, WARM, chi_square, make_tiny
from tiny_heads import STEPS, hiding_first, pair_with
from tree_drafters import GUMBEL, TOKENS, alone

import specviz as sv
from specviz.engine.draft_length import DraftLength
from specviz.engine.drafters.chains import choose
from specviz.engine.events import Drafted
from specviz.engine.heads import KINDS, build_head
from specviz.engine.state import State
from specviz.zoo.heads import unroll

STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback")
WITH_CACHE = [kind for kind in KINDS if kind != "medusa"]


def run(name: str, kind: str, dtype: torch.dtype = torch.float32, **options: object) -> sv.Result:
    settings = {"num_draft_tokens": STEPS, "max_new_tokens": TOKENS, "batch_size": 3}
    pair = pair_with(name, kind, dtype)
    return generate(pair, make_prompts(), **{"drafter": kind} | settings | options)


def accepted(result: sv.Result) -> list[list[int]]:
    """Accepted drafts by request, round by round; of finished rows none."""
    rows = result.rows
    found: list[list[int]] = [[] for _ in result.tokens]
    for request, gained, count in zip(
        rows["request"].tolist(), rows["gained"].tolist(), rows["accepted"].tolist(), strict=True
    ):
        if gained:
            found[request].append(count)
    return found


def number(kind: str, strategy: str) -> int:
    return KINDS.index(kind) + STRATEGIES.index(strategy)


# --- the text ---


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("kind", "strategy"), in_turn(KINDS, STRATEGIES, every=2))
def test_the_text_is_the_targets_own(kind, strategy):
    """Each pair of head and strategy with one model class, dtype, batch size and way to choose."""
    n = number(kind, strategy)
    # The training of an MTP layer, which the head here has had, knows layers like Llama's.
    names = ["llama", "qwen3"] if kind == "mtp" else list(CLASSES)
    name = names[n % len(names)]
    sampled = n % 2 == 1
    dtype = (torch.float32, torch.float64)[n // 2 % 2]
    options = {"strategy": strategy, "batch_size": (1, 3, 8)[n % 3]}
    result = run(name, kind, dtype, sampling=GUMBEL if sampled else None, record=True, **options)
    assert result.tokens == alone(name, dtype, sampled)
    assert not sv.check_invariants(result.trace)
    if strategy != "rollback":  # which keeps no more than the worst row of the batch
        assert max(map(max, accepted(result))) > 0, "no draft was ever accepted"


@pytest.mark.sweep(6)
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_do_not_depend_on_how_rows_are_kept_in_step(kind):
    """A head whose slab is realigned wrongly would still leave the text right."""
    first = accepted(run("llama", kind, strategy="inplace"))
    for strategy in ("eqspec", "masking", "exspec"):
        assert accepted(run("llama", kind, strategy=strategy)) == first, strategy
    assert accepted(run("llama", kind, batch_size=1)) == first


@pytest.mark.sweep(4)
@pytest.mark.parametrize("kind", WITH_CACHE)
def test_a_kept_cache_gives_the_drafts_of_reading_everything_again(kind):
    kept = run("qwen3", kind)
    again = run("qwen3", kind, levers=sv.Levers(keep_draft=False))
    assert accepted(again) == accepted(kept)


@pytest.mark.sweep(12)
@pytest.mark.parametrize(("kind", "strategy"), in_turn(KINDS, STRATEGIES[:4], every=2))
def test_what_a_head_keeps_is_computed_again(kind, strategy):
    """Its K/V of committed tokens is that of a fresh prefill with true features."""
    result = run("qwen3", kind, strategy=strategy, record=True)
    pair = pair_with("qwen3", kind)
    assert not sv.check_invariants(result.trace, deep=True, pair=pair)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_of_a_head_that_were_drawn_are_no_finding(kind):
    """Warped, so that the record does not show q; what the head computes is not the draft's."""
    sampling = sv.SamplingParams(0.8, top_k=20)
    result = run("llama", kind, sampling=sampling, record=True)
    assert max(map(max, accepted(result))) > 0
    pair = pair_with("llama", kind)
    assert not sv.check_invariants(result.trace, deep=True, pair=pair)


def test_a_pair_without_the_head_is_refused():
    result = run("qwen3", "eagle3", record=True)
    check_refusal(
        lambda: sv.check_invariants(result.trace, deep=True, pair=make_pair("qwen3")),
        "pair has draft",
        "eagle3 head",
    )


@pytest.mark.parametrize(
    ("drafter", "selector", "most"),
    [
        ("medusa", "everything", STEPS),
        ("medusa", sv.selector("tetris", extra=1), STEPS),
        (sv.drafter("static_tree", base="medusa", paths=[[0], [1], [0, 0]]), "everything", 3),
        (sv.drafter("tree", base="medusa", depth=1, children=2), "everything", 2),
    ],
    ids=str,
)
def test_auto_keeps_to_what_a_drafter_can(drafter, selector, most):
    pair = pair_with("llama", "medusa")
    heads = build_head("medusa", pair.target, heads=STEPS, depth=1).eval()
    pair = replace(pair, heads={"medusa": heads})
    options = {"drafter": drafter, "selector": selector, "num_draft_tokens": "auto"}
    result = generate(pair, make_prompts(), max_new_tokens=TOKENS, **options)
    assert result.tokens == alone("llama", torch.float32, False)
    assert result.meta["num_draft_tokens"] == most
    check_refusal(
        lambda: generate(pair, [[1]], drafter="medusa", num_draft_tokens=STEPS + 1),
        f"num_draft_tokens must be at most {STEPS}",
    )


def test_a_head_in_training_mode_is_refused():
    pair = pair_with("llama", "medusa")
    pair.heads["medusa"].train()
    check_refusal(
        lambda: generate(pair, [[7]], drafter="medusa"),
        "heads['medusa']=ResidualHeads is in training mode",
        "call pair.heads['medusa'].eval(), and .train() again after the run",
    )
    pair.heads["medusa"].eval()


def test_shifted_kv_of_a_head_is_found_by_its_numbers():
    strategy = sv.strategy("inplace", break_invariant="kv", rows=[1], from_round=2)
    result = run("qwen3", "eagle3", strategy=strategy, record=True)
    found = sv.check_invariants(result.trace, deep=True, pair=pair_with("qwen3", "eagle3"))
    assert {("kv", "draft"), ("kv", "target")} <= {(each.rule, each.model) for each in found}
    assert {each.head for each in found if each.model == "target"} == {None}


# How far weights are from those that training starts with, so that some drafts are accepted.
NOISE = dict.fromkeys(KINDS, 0.4) | {"clover": 0.15}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_text_is_the_targets(kind):
    """The head is random and draws quite other tokens. Odds of a false failure: 1e-6 for each."""
    pair = make_tiny()
    head = build_head(kind, pair.target, seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in head.parameters():
            if weight.ndim > 1:
                weight += NOISE[kind] * torch.randn(weight.shape, generator=generator)
    result = generate(
        replace(pair, heads={kind: head.double().eval().requires_grad_(False)}),
        [PROMPT] * COPIES,
        drafter=kind,
        sampling=sv.SamplingParams(**WARM),
        seed=1,
        num_draft_tokens=2,
        batch_size=1000,
        max_new_tokens=3,
    )
    assert 0.05 < result.summary["draft_acceptance_rate"].item() < 0.95, "both must happen"
    statistic, limit = chi_square(result.tokens, sv.SamplingParams(**WARM))
    assert statistic < limit


# --- the drafts ---


def drafted(events: Iterator[object]) -> Iterator[Drafted]:
    for event in events:
        if isinstance(event, Drafted) and event.draft.tokens.shape[1]:
            yield event


def expected_logits(pair: sv.Pair, kind: str, state: State, row: int, draft: torch.Tensor):
    """Logits (K, V) of the head along a row's own drafts (K,), from a fresh forward of its text."""
    live = state.batch.rows[row]
    text = [*live.request.prompt, *live.output]
    tokens = torch.tensor([text + draft.tolist()])
    head = pair.heads[kind]
    states = pair.target.base_model(tokens, output_hidden_states=True).hidden_states
    start = torch.tensor([[len(text) - 1]])
    outputs = unroll(head, tokens, head.select(states), start, len(draft))
    return torch.stack([output.logits[0, 0] for output in outputs])


@pytest.mark.sweep(4)
@pytest.mark.parametrize("lengths", [STEPS, "changing"])
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_those_of_the_head_on_true_features(kind, lengths):
    """In every round: the logits of the unrolled head, which training uses, on a fresh forward.

    So tokens, features and positions belong together, whatever the cache has been through, and
    rounds without drafts leave nothing out.
    """
    strategy = STRATEGIES[KINDS.index(kind)]
    length = Forced([STEPS, 0, 2, 0, 0, 1]) if lengths == "changing" else STEPS
    check_drafts(pair_with("llama", kind, torch.float64), kind, strategy, length)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_hidden_first_entry_is_hidden_wherever_it_lies(strategy):
    pair = hiding_first(pair_with("llama", "eagle3", torch.float64), "eagle3")
    check_drafts(pair, "eagle3", strategy, STEPS)


def check_drafts(pair: sv.Pair, kind: str, strategy: str, length: int | DraftLength) -> None:
    events = sv.decode(
        pair,
        make_prompts(),
        drafter=kind,
        strategy=strategy,
        num_draft_tokens=length,
        batch_size=3,
        max_new_tokens=TOKENS,
    )
    seen = 0
    for event in drafted(events):
        for row, live in enumerate(event.state.batch.rows):
            if live.finished:
                continue
            tokens = event.draft.tokens[row]
            with torch.inference_mode():
                expected = expected_logits(pair, kind, event.state, row, tokens)
            found = event.draft.logits[row]
            # The drafter chooses from float32.
            torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)
            seen += 1
    assert seen > 20


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_drawn_from_the_very_q_that_judges_them(kind):
    """In bfloat16, where a q that is computed a second time in float32 would be another one."""
    sampling = sv.SamplingParams(0.9, top_p=0.9)
    events = sv.decode(
        pair_with("llama", kind, torch.bfloat16),
        make_prompts(),
        drafter=kind,
        num_draft_tokens=STEPS,
        batch_size=5,
        max_new_tokens=TOKENS,
        sampling=sampling,
    )
    seen = 0
    for event in drafted(events):
        logits = event.draft.logits
        assert logits.dtype == torch.float32
        drawn = [choose(event.state, logits[:, j], j) for j in range(STEPS)]
        assert torch.equal(torch.stack(drawn, 1), event.draft.tokens)
        # What a module of bfloat16 computes can be no finer, so the head's own q it is.
        assert torch.equal(logits, logits.bfloat16().float())
        seen += drawn[0].numel()
    assert seen > 20


def test_without_reading_accepted_drafts_again_the_record_tells():
    kind = "eagle3"
    result = run("llama", kind, drafter=sv.drafter(kind, reread=False), record=True)
    assert result.tokens == alone("llama", torch.float32, False)
    found = sv.check_invariants(result.trace)
    # What is computed from such K/V is wrong, too, and "kv" says so.
    assert {violation.rule for violation in found} == {"caches", "kv"}
    assert found[0].rule == "caches"
    assert {violation.model for violation in found} == {"draft"}
    assert {violation.head for violation in found} == {kind}
    assert f", draft phase, {kind} head, row " in str(found[0])
    # The last two tokens are read anyway. So it shows after the first two drafts in one round.
    rows = result.trace.rows
    pairs = zip(make_prompts(), result.tokens, strict=True)
    size = np.array([len(prompt) + len(output) for prompt, output in pairs])
    goes_on = rows["length"] + rows["gained"] < size[rows["request"]]
    assert found[0].round == rows["round"][(rows["accepted"] > 1) & goes_on].min() + 1
    assert "not read again" in found[0].found


def test_without_reading_accepted_drafts_again_other_drafts_are_made():
    kept = run("llama", "eagle3", strategy="inplace")
    stale = run("llama", "eagle3", drafter=sv.drafter("eagle3", reread=False))
    assert accepted(stale) != accepted(kept)
