"""Logits that are no numbers: the row ends there and says so, and no other row's text changes."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from conftest import EOS, VOCABULARY, make_pair, make_prompts
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine.accept import clip, soundness
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
    """Whatever reads the token has K/V and logits that are no numbers."""
    with torch.no_grad():
        model.get_input_embeddings().weight[POISON, 3] = value


def poison_logits(model: PreTrainedModel, value: float) -> None:
    """The logits behind the token hold one value that is no number; its K/V is sound."""

    def spoil(
        module: torch.nn.Module, args: object, kwargs: dict[str, torch.Tensor], said: object
    ) -> None:
        said.logits[kwargs["input_ids"] == POISON, 7] = value  # type: ignore[attr-defined]

    model.register_forward_hook(spoil, with_kwargs=True)


BREAKS: dict[str, tuple[Callable[[PreTrainedModel, float], None], float]] = {
    "NaN in the K/V": (poison_embedding, math.nan),
    "infinity in the K/V": (poison_embedding, math.inf),
    "NaN in the logits": (poison_logits, math.nan),
    "infinity in the logits": (poison_logits, math.inf),
}


def broken_pair(part: str, breaks: str) -> sv.Pair:
    pair = copy.deepcopy(make_pair("llama"))
    spoil, value = BREAKS[breaks]
    spoil(getattr(pair, part), value)
    return pair


def prompts() -> list[list[int]]:
    """Two that hold the poisoned token from the start among ten others."""
    return [[3, POISON, 8], *make_prompts(), [POISON]]


def cut(prompt: list[int], tokens: list[int]) -> tuple[list[int], str]:
    """What is left of a text where nothing can follow the poisoned token, and how it ends."""
    if prompt[-1] == POISON:
        return [], "not_finite"
    kept = tokens[: tokens.index(POISON) + 1] if POISON in tokens else tokens
    if kept != tokens:
        return kept, "not_finite"
    return kept, "eos" if kept[-1] in EOS else "budget"


def check(result: sv.Result, clean: sv.Result, breaks: str) -> None:
    """Rows that go on wrote what they would have written; rows that ended wrote its beginning.

    With sound K/V, they end exactly behind the poisoned token. Where K/V is no number, a token that is only proposed is enough to break its
    own row, since a mask does not stop a NaN: then the row may end sooner, and rows that never wrote the token may end, too.
    """
    before_poison = [
        cut(prompt, tokens) for prompt, tokens in zip(prompts(), clean.tokens, strict=True)
    ]
    ended = [status == "not_finite" for status in result.status]
    if "logits" in breaks:
        assert list(zip(result.tokens, result.status, strict=True)) == before_poison
    for ours, theirs, broken, (longest, status), prompt in zip(
        result.tokens, clean.tokens, ended, before_poison, prompts(), strict=True
    ):
        assert broken or (
            ours == theirs
            and status != "not_finite"
            and POISON not in prompt[:-1] * ("K/V" in breaks)
        )
        assert ours == longest[: len(ours)]
    assert 3 <= sum(ended) < len(ended)
    assert set(clean.status) == {"eos", "budget"}


HITS = ("NaN in the K/V", "infinity in the logits")
# Rollback cuts rows to the worst of the batch, and where a round begins decides which number rejection sampling uses for a token: there the
# sample, not its distribution, depends on the neighbours.
ALONE = [
    (name, kind)
    for name in VALID
    for kind in SAMPLINGS
    if (name, kind) != ("rollback", "rejection")
]
CASES = [(name, kind, breaks, False) for name, kind in ALONE for breaks in HITS]
CASES += [
    (name, "greedy", breaks, True)
    for name in VALID
    for breaks in ("infinity in the K/V", "NaN in the logits")
]


@pytest.mark.parametrize(("name", "kind", "breaks", "record"), CASES)
def test_a_row_ends_where_the_targets_logits_are_no_numbers(
    name: str, kind: str, breaks: str, record: bool
) -> None:
    """Slabs have three rows for twelve prompts, so that others follow where a broken row was."""
    run = RUN | {"strategy": sv.strategy(name), "sampling": SAMPLINGS[kind], "record": record}
    clean = sv.generate(make_pair("llama"), prompts(), **run)
    result = sv.generate(broken_pair("target", breaks), prompts(), **run)
    check(result, clean, breaks)
    if record:
        assert list(sv.check_invariants(result.trace)) == []


@pytest.mark.parametrize("options", [{"strategy": sv.strategy("eqspec", refill=False)}, {"deterministic": True}, {"drafter": "lookup"},
                                     {"strategy": sv.strategy("eqspec", as_published=True)},
                                     {"strategy": sv.strategy("exspec", as_published=True)}])  # fmt: skip
def test_static_batches_fixed_shapes_and_other_drafters(options: dict[str, object]) -> None:
    clean = sv.generate(make_pair("llama"), prompts(), **RUN | options)
    breaks = "NaN in the K/V"
    result = sv.generate(broken_pair("target", breaks), prompts(), **RUN | options)
    check(result, clean, breaks)


@pytest.mark.parametrize("breaks", ["NaN in the K/V", "infinity in the logits"])
@pytest.mark.parametrize("kind", ["greedy", "gumbel"])
@pytest.mark.parametrize("name", VALID[1:])
def test_a_draft_without_numbers_costs_no_text(name: str, kind: str, breaks: str) -> None:
    """Its proposals are tokens all the same, and the target judges them; with coupling="gumbel", too, the text is the target's own."""
    run = RUN | {"strategy": sv.strategy(name), "sampling": SAMPLINGS[kind]}
    clean, result = (
        sv.generate(pair, prompts(), **run)
        for pair in (make_pair("llama"), broken_pair("draft", breaks))
    )
    assert result.tokens == clean.tokens
    assert "not_finite" not in result.status


@pytest.mark.parametrize("breaks", BREAKS)
def test_what_a_draft_without_numbers_proposes_is_rejected_when_sampling(breaks: str) -> None:
    """q is no number there, no draft is accepted, and the token is drawn from p as if nothing had been drafted: the text ends as ever."""
    result = sv.generate(
        broken_pair("draft", breaks), prompts(), sampling=SAMPLINGS["rejection"], **RUN
    )
    assert set(result.status) <= {"eos", "budget"}
    assert all(0 <= token < VOCABULARY for tokens in result.tokens for token in tokens)
    assert (
        result.summary["mean_acceptance_length"].iloc[0] > 1
    )  # rows that never read the token draft as ever


def test_minus_infinity_rules_a_token_out() -> None:
    """As samplers use it: no row ends of it, unless nothing else is left."""
    pair = copy.deepcopy(make_pair("llama"))
    pair.target.register_forward_hook(
        lambda module, args, said: setattr(
            said, "logits", said.logits.index_fill(2, EVEN, -math.inf)
        )
    )
    result = sv.generate(pair, prompts(), **RUN)
    assert set(result.status) <= {"eos", "budget"}
    assert all(token % 2 for tokens in result.tokens for token in tokens)


@pytest.mark.parametrize(
    ("value", "sound"), [(math.nan, 1), (math.inf, 1), (-math.inf, 3), (1e30, 3)]
)
def test_how_far_logits_can_be_chosen_from(value: float, sound: int) -> None:
    logits = torch.zeros(2, 3, 5)
    logits[1, 1, 2] = value
    said, unsound = soundness(logits, torch.zeros(2, 2, dtype=torch.long), None)
    assert said.tolist() == [3, sound]
    assert unsound.tolist() == [False, sound < 3]
    logits[1, 1] = -math.inf
    assert soundness(logits, torch.zeros(2, 2, dtype=torch.long), None)[0].tolist() == [3, 1]


@pytest.mark.parametrize(
    ("accepted", "sound", "gained", "finished"),
    [
        (2, 3, 3, False),
        (2, 2, 2, True),
        (2, 0, 0, True),
        (1, 2, 2, False),
        (0, 1, 1, False),
        (0, 0, 0, True),
    ],
)
def test_a_row_ends_only_if_what_it_needs_is_no_number(
    accepted: int, sound: int, gained: int, finished: bool
) -> None:
    """A rejected draft behind which there are no numbers does not matter."""
    outcome = clip(
        torch.tensor([accepted]), torch.tensor([[11, 12, 13]]), torch.tensor([9]), torch.tensor([5]),
        sound=torch.tensor([sound]), unsound=torch.tensor([sound < 3]),
    )  # fmt: skip
    assert (outcome.gained.item(), outcome.finished.item(), outcome.broken.item()) == (
        gained,
        finished,
        finished,
    )
    assert outcome.unsound.item() == (sound < 3)
