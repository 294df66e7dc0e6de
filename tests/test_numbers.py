"""Non-finite logits: the row ends there with a status that says so; no other row's text changes."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from conftest import EOS, VOCABULARY, make_pair, make_prompts
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine.accept import check_finite, clip
from specviz.engine.strategies import STRATEGIES

VALID = [name for name, kind in STRATEGIES.items() if kind().promises]
SAMPLINGS = {
    "greedy": None,
    "rejection": sv.SamplingParams(temperature=0.8, top_k=20),
    "gumbel": sv.SamplingParams(temperature=0.8, top_p=0.9, coupling="gumbel"),
}
POISON = 21  # a token that some of the tiny target's texts hold, and others do not
EVEN = torch.arange(0, VOCABULARY, 2)
RUN = {"max_new_tokens": 16, "batch_size": 3, "num_draft_tokens": 4, "progress": False}


def poison_embedding(model: PreTrainedModel, value: float) -> None:
    """Make K/V and logits non-finite in every row that reads the token."""
    with torch.no_grad():
        model.get_input_embeddings().weight[POISON, 3] = value


def poison_logits(model: PreTrainedModel, value: float) -> None:
    """Make one of the logits after the token non-finite; its K/V stays finite."""

    def poison(
        module: torch.nn.Module, args: object, kwargs: dict[str, torch.Tensor], output: object
    ) -> None:
        output.logits[kwargs["input_ids"] == POISON, 7] = value  # type: ignore[attr-defined]

    model.register_forward_hook(poison, with_kwargs=True)


POISONS: dict[str, tuple[Callable[[PreTrainedModel, float], None], float]] = {
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


def check(result: sv.Result, clean: sv.Result, poison: str) -> None:
    """Rows that go on wrote the text of the clean run; rows that ended wrote its beginning.

    With finite K/V, they end exactly after the poisoned token. With non-finite K/V, a token that is
    only proposed is enough to end its own row, since a mask does not stop a NaN. The row may then
    end sooner, and rows that never wrote the token may end, too.
    """
    before_poison = [
        cut(prompt, tokens) for prompt, tokens in zip(prompts(), clean.tokens, strict=True)
    ]
    ended = [status == "not_finite" for status in result.status]
    if "logits" in poison:
        assert list(zip(result.tokens, result.status, strict=True)) == before_poison
    for ours, theirs, has_ended, (longest, status), prompt in zip(
        result.tokens, clean.tokens, ended, before_poison, prompts(), strict=True
    ):
        assert has_ended or (
            ours == theirs
            and status != "not_finite"
            and not ("K/V" in poison and POISON in prompt[:-1])
        )
        assert ours == longest[: len(ours)]
    assert 3 <= sum(ended) < len(ended)
    assert set(clean.status) == {"eos", "budget"}


TWO_POISONS = ("NaN in the K/V", "infinity in the logits")
# Rollback cuts rows to the smallest acceptance of the batch, and where a round begins decides which
# number rejection sampling uses for a token. So the sample, not its distribution, depends on the
# other rows.
ALONE = [
    (name, kind)
    for name in VALID
    for kind in SAMPLINGS
    if (name, kind) != ("rollback", "rejection")
]
CASES = [(name, kind, poison, False) for name, kind in ALONE for poison in TWO_POISONS]
CASES += [
    (name, "greedy", poison, True)
    for name in VALID
    for poison in ("infinity in the K/V", "NaN in the logits")
]


@pytest.mark.parametrize(("name", "kind", "poison", "record"), CASES)
def test_a_row_ends_at_non_finite_target_logits(
    name: str, kind: str, poison: str, record: bool
) -> None:
    """Three rows serve twelve prompts, so that others reuse the slots of a row that ended."""
    run = RUN | {"strategy": sv.strategy(name), "sampling": SAMPLINGS[kind], "record": record}
    clean = sv.generate(make_pair("llama"), prompts(), **run)
    result = sv.generate(poisoned_pair("target", poison), prompts(), **run)
    check(result, clean, poison)
    if record:
        assert list(sv.check_invariants(result.trace)) == []


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": sv.strategy("eqspec", refill=False)},
        {"deterministic": True},
        {"drafter": "lookup"},
        {"strategy": sv.strategy("eqspec", as_published=True)},
        {"strategy": sv.strategy("exspec", as_published=True)},
    ],
)
def test_static_batches_fixed_shapes_and_other_drafters(options: dict[str, object]) -> None:
    clean = sv.generate(make_pair("llama"), prompts(), **RUN | options)
    poison = "NaN in the K/V"
    result = sv.generate(poisoned_pair("target", poison), prompts(), **RUN | options)
    check(result, clean, poison)


@pytest.mark.parametrize("poison", TWO_POISONS)
@pytest.mark.parametrize("kind", ["greedy", "gumbel"])
@pytest.mark.parametrize("name", VALID[1:])
def test_a_non_finite_draft_changes_no_text(name: str, kind: str, poison: str) -> None:
    """Its proposals are still tokens that the target verifies; the text is the target's own."""
    run = RUN | {"strategy": sv.strategy(name), "sampling": SAMPLINGS[kind]}
    clean, result = (
        sv.generate(pair, prompts(), **run)
        for pair in (make_pair("llama"), poisoned_pair("draft", poison))
    )
    assert result.tokens == clean.tokens
    assert "not_finite" not in result.status


@pytest.mark.parametrize("poison", POISONS)
def test_a_non_finite_draft_is_rejected_when_sampling(poison: str) -> None:
    """With a non-finite q no draft is accepted, and the token is drawn from p."""
    result = sv.generate(
        poisoned_pair("draft", poison), prompts(), sampling=SAMPLINGS["rejection"], **RUN
    )
    assert set(result.status) <= {"eos", "budget"}
    assert all(0 <= token < VOCABULARY for tokens in result.tokens for token in tokens)
    # Rows that never read the token draft as before.
    assert result.summary["mean_acceptance_length"].iloc[0] > 1


def test_minus_infinity_rules_a_token_out() -> None:
    """No row ends because of some -inf, unless nothing else is left."""
    pair = copy.deepcopy(make_pair("llama"))
    pair.target.register_forward_hook(
        lambda module, args, output: setattr(
            output, "logits", output.logits.index_fill(2, EVEN, -math.inf)
        )
    )
    result = sv.generate(pair, prompts(), **RUN)
    assert set(result.status) <= {"eos", "budget"}
    assert all(token % 2 for tokens in result.tokens for token in tokens)


@pytest.mark.parametrize(
    ("value", "finite"), [(math.nan, 1), (math.inf, 1), (-math.inf, 3), (1e30, 3)]
)
def test_positions_before_the_first_non_finite_one_are_counted(value: float, finite: int) -> None:
    logits = torch.zeros(2, 3, 5)
    logits[1, 1, 2] = value
    finite_count, any_nonfinite = check_finite(logits, torch.zeros(2, 2, dtype=torch.long), None)
    assert finite_count.tolist() == [3, finite]
    assert any_nonfinite.tolist() == [False, finite < 3]
    logits[1, 1] = -math.inf
    assert check_finite(logits, torch.zeros(2, 2, dtype=torch.long), None)[0].tolist() == [3, 1]


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
    accepted: int, finite: int, gained: int, finished: bool
) -> None:
    """Non-finite logits after a rejected draft do not matter."""
    outcome = clip(
        accepted=torch.tensor([accepted]),
        emitted=torch.tensor([[11, 12, 13]]),
        room=torch.tensor([9]),
        eos_token_ids=torch.tensor([5]),
        finite=torch.tensor([finite]),
        any_nonfinite=torch.tensor([finite < 3]),
    )
    assert outcome.gained.item() == gained
    assert outcome.finished.item() == finished
    assert outcome.ended_nonfinite.item() == finished
    assert outcome.any_nonfinite.item() == (finite < 3)
