"""Non-finite logits: the row ends there with a status that says so; no other row's text changes."""

import copy
import functools
import math

import published
import pytest
import torch
from conftest import EOS, VOCABULARY, generate, make_pair, make_prompts
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine.accept import check_finite, clip
from specviz.engine.draft import Draft
from specviz.engine.strategies import STRATEGIES
from specviz.engine.trees import Walk

VALID = [name for name, kind in STRATEGIES.items() if kind().promises]
SAMPLINGS = {
    "greedy": None,
    "rejection": sv.SamplingParams(temperature=0.8, top_k=20),
    "gumbel": sv.SamplingParams(temperature=0.8, top_p=0.9, coupling="gumbel"),
}
POISON = 21  # a token that some of the tiny target's texts hold, and others do not
EVEN = torch.arange(0, VOCABULARY, 2)
RUN = {"max_new_tokens": 16, "batch_size": 3, "num_draft_tokens": 4}


def poison_embedding(model: PreTrainedModel, value: float):
    """Make K/V and logits non-finite in every row that reads the token."""
    with torch.no_grad():
        model.get_input_embeddings().weight[POISON, 3] = value


def poison_logits(model: PreTrainedModel, value: float):
    """Make one of the logits after the token non-finite; its K/V stays finite."""

    def poison(
        module: torch.nn.Module, args: object, kwargs: dict[str, torch.Tensor], output: object
    ):
        output.logits[kwargs["input_ids"] == POISON, 7] = value  # type: ignore[attr-defined]

    model.register_forward_hook(poison, with_kwargs=True)


POISONS = {
    "NaN in the K/V": (poison_embedding, math.nan),
    "infinity in the K/V": (poison_embedding, math.inf),
    "NaN in the logits": (poison_logits, math.nan),
    "infinity in the logits": (poison_logits, math.inf),
}


def poisoned_pair(part: str, poison: str) -> sv.Pair:
    pair = copy.deepcopy(make_pair("llama"))
    apply, value = POISONS[poison]
    apply(getattr(pair, part), value)
    return pair


def poisoned(part: str, poison: str, **options: object) -> sv.Result:
    return generate(poisoned_pair(part, poison), prompts(), **RUN | options)


@functools.cache
def clean(**options: object) -> sv.Result:
    return generate(make_pair("llama"), prompts(), **RUN | options)


def prompts() -> list[list[int]]:
    """Return the ten usual prompts and two that hold the poisoned token."""
    return [[3, POISON, 8], *make_prompts(), [POISON]]


def cut(prompt: list[int], tokens: list[int]) -> tuple[list[int], str]:
    """Return what is left of a text if nothing can follow the poisoned token, and its status."""
    if prompt[-1] == POISON:
        return [], "not_finite"
    kept = tokens[: tokens.index(POISON) + 1] if POISON in tokens else tokens
    if kept != tokens:
        return kept, "not_finite"
    return kept, "eos" if kept[-1] in EOS else "budget"


def check(poison: str, **options: object) -> sv.Result:
    """Rows that go on wrote the text of the clean run; rows that ended wrote its beginning.

    With finite K/V, they end exactly after the poisoned token. With non-finite K/V, a token that is
    only proposed is enough to end its own row, since a mask does not stop a NaN. The row may then
    end sooner, and rows that never wrote the token may end, too.
    """
    result = poisoned("target", poison, **options)
    whole = clean(**options)
    before_poison = [
        cut(prompt, tokens) for prompt, tokens in zip(prompts(), whole.tokens, strict=True)
    ]
    ended = [status == "not_finite" for status in result.status]
    if "logits" in poison:
        assert list(zip(result.tokens, result.status, strict=True)) == before_poison
    for ours, theirs, has_ended, (longest, status), prompt in zip(
        result.tokens, whole.tokens, ended, before_poison, prompts(), strict=True
    ):
        assert has_ended or (
            ours == theirs
            and status != "not_finite"
            and not ("K/V" in poison and POISON in prompt[:-1])
        )
        assert ours == longest[: len(ours)]
    assert 3 <= sum(ended) < len(ended)
    assert set(whole.status) == {"eos", "budget"}
    return result


# Rollback cuts rows to the smallest acceptance of the batch, and where a round begins decides which
# number rejection sampling uses for a token: its sample, though not its distribution, depends on
# the other rows. By day, each strategy decodes greedily and with one of the couplings.
ALONE = [
    pytest.param(
        name,
        kind,
        marks=() if kind in ("greedy", ("rejection", "gumbel")[number % 2]) else pytest.mark.slow,
    )
    for number, name in enumerate(VALID)
    for kind in SAMPLINGS
    if (name, kind) != ("rollback", "rejection")
]


@pytest.mark.sweep(16)
@pytest.mark.parametrize(("name", "kind"), ALONE)
def test_a_row_ends_at_non_finite_target_logits(name, kind):
    """Three rows serve twelve prompts, so that others reuse the slots of a row that ended."""
    run = {"strategy": name, "sampling": SAMPLINGS[kind]}
    record = kind == "greedy"
    for poison in list(POISONS)[record::2]:
        result = check(poison, **run, record=record)
        if record:
            assert list(sv.check_invariants(result.trace)) == []


@pytest.mark.sweep(6)
@pytest.mark.parametrize(
    "options",
    [
        {"strategy": sv.strategy("eqspec", refill=False)},
        {"deterministic": True},
        {"drafter": "lookup"},
        {"strategy": published.strategy("eqspec", as_published=True)},
        {"strategy": published.strategy("exspec", as_published=True)},
    ],
)
def test_static_batches_fixed_shapes_and_other_drafters(options):
    check("NaN in the K/V", **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", VALID[1:])
def test_a_non_finite_draft_changes_no_text(name):
    """Its proposals are still tokens that the target verifies; the text is the target's own."""
    for kind, poison in (("greedy", "NaN in the K/V"), ("gumbel", "infinity in the logits")):
        run = {"strategy": name, "sampling": SAMPLINGS[kind], "record": kind == "greedy"}
        result = poisoned("draft", poison, **run)
        assert result.tokens == clean(**run).tokens
        assert "not_finite" not in result.status


@pytest.mark.sweep(4)
@pytest.mark.parametrize("poison", POISONS)
def test_a_non_finite_draft_is_rejected_when_sampling(poison):
    """With a non-finite q no draft is accepted, and the token is drawn from p."""
    result = poisoned("draft", poison, sampling=SAMPLINGS["rejection"])
    assert set(result.status) <= {"eos", "budget"}
    assert all(0 <= token < VOCABULARY for tokens in result.tokens for token in tokens)
    # Rows that never read the token draft as before.
    assert result.summary["mean_acceptance_length"].iloc[0] > 1


def test_minus_infinity_rules_a_token_out():
    """No row ends because of some -inf, unless nothing else is left."""
    pair = copy.deepcopy(make_pair("llama"))
    pair.target.register_forward_hook(
        lambda module, args, output: setattr(
            output, "logits", output.logits.index_fill(2, EVEN, -math.inf)
        )
    )
    result = generate(pair, prompts(), **RUN)
    assert set(result.status) <= {"eos", "budget"}
    assert all(token % 2 for tokens in result.tokens for token in tokens)


@pytest.mark.parametrize(
    ("value", "finite"), [(math.nan, 1), (math.inf, 1), (-math.inf, 3), (1e30, 3)]
)
def test_positions_before_the_first_non_finite_one_are_counted(value, finite):
    logits = torch.zeros(2, 3, 5)
    logits[1, 1, 2] = value
    draft = Draft(torch.zeros(2, 2, dtype=torch.long))
    finite_count, any_nonfinite = check_finite(logits, draft, None)
    assert finite_count.tolist() == [3, finite]
    assert any_nonfinite.tolist() == [False, finite < 3]
    logits[1, 1] = -math.inf
    assert check_finite(logits, draft, None)[0].tolist() == [
        3,
        1,
    ]


@pytest.mark.parametrize(
    ("accepted", "finite", "gained", "finished"),
    [
        (2, 3, 3, False),
        (2, 2, 2, True),
        (2, 0, 0, True),
        (1, 2, 2, False),
        (0, 1, 1, False),
        (0, 0, 0, True),
    ],
)
def test_a_row_ends_only_if_the_logits_that_it_needs_are_non_finite(
    accepted, finite, gained, finished
):
    """Non-finite logits after a rejected draft do not matter."""
    outcome = clip(
        Walk(torch.tensor([accepted]), torch.tensor([[11, 12, 13]]), None),
        room=torch.tensor([9]),
        eos_token_ids=torch.tensor([5]),
        finite=(torch.tensor([finite]), torch.tensor([finite < 3])),
    )
    assert outcome.gained.item() == gained
    assert outcome.finished.item() == finished
    assert outcome.ended_nonfinite.item() == finished
    assert outcome.any_nonfinite.item() == (finite < 3)
