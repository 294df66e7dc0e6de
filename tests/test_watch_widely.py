"""`sv.watch` over models of many classes, and over rows that are refilled, moved and alike."""

from collections.abc import Iterator

import pytest
from conftest import make_prompts
from decoder_work import named, pair, prompts, watched
from families import NEW_TOKENS, alone, perturbed
from tiny_models import EOS, build, families, make_config
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

import specviz as sv

# Learned, rotary and partly rotary positions, experts, latent attention, attention of their own.
FAMILIES = {
    "llama": "sdpa",
    "gpt2": "eager",
    "opt": "sdpa",
    "gpt_neox": "sdpa",
    "falcon": "sdpa",
    "gptj": "eager",
    "phi": "sdpa",
    "gemma": "sdpa",
    "starcoder2": "eager",
    "olmo2": "sdpa",
    "qwen3": "eager",
    "mixtral": "sdpa",
    "cohere": "sdpa",
    "deepseek_v3": "sdpa",
}
THEIR_OWN = ("falcon", "gptj")  # attention that no hook reads
GIVEN = [list(prompt) for prompt in make_prompts()[2:5]]


def models(family: str, attention: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    target = build(family, make_config(families()[family]), attention)
    return target, perturbed(target)


def audited(
    target: PreTrainedModel, draft: PreTrainedModel, decoder: str
) -> tuple[list[bool], sv.WatchReport]:
    """Return which texts are right, and the report."""
    seen, outputs = watched(named(decoder), (target, draft), GIVEN, 3, NEW_TOKENS, (EOS,))
    right = [output == alone(target, prompt) for output, prompt in zip(outputs, GIVEN, strict=True)]
    return right, seen.audit(GIVEN, outputs, eos_token_ids=[EOS])


QUICK = ("llama", "gpt2", "deepseek_v3", "falcon")


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    "family",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES],
)
def test_models_of_this_class_are_watched(family: str) -> None:
    target, draft = models(family, FAMILIES[family])
    right, report = audited(target, draft, "holes.Holes")
    assert all(right)
    assert report.is_right, report
    assert ("not seen: masks of " in str(report)) == (family in THEIR_OWN)
    for decoder, rule in (("holes.ColumnPositions", "positions"), ("holes.RejectedSeen", "mask")):
        right, report = audited(target, draft, decoder)
        if not all(right):
            assert report.faults[0].rule == rule, report


def test_what_a_window_forgets_is_refused() -> None:
    target, draft = models("mistral", "sdpa")
    with pytest.raises(ValueError, match=r"(target|draft) has a sliding window of 8 tokens"):
        audited(target, draft, "one_row.OneRow")
    target.config.sliding_window = draft.config.sliding_window = 64
    right, report = audited(target, draft, "one_row.OneRow")
    assert all(right)
    assert report.is_right
    target.config.layer_types = ["chunked_attention", "full_attention"]
    with pytest.raises(ValueError, match="target has layers of type chunked_attention; watch a"):
        sv.watch(target, draft)


@pytest.fixture
def late() -> Iterator[str]:
    """Yield the name of an attention function that a decoder registers when it runs."""
    name = "late"
    yield name
    for interface in (AttentionInterface, AttentionMaskInterface):
        interface._global_mapping.pop(name, None)


def test_attention_that_is_registered_late_is_seen(late: str) -> None:
    target, draft = models("llama", "sdpa")

    def decode() -> list[list[int]]:
        AttentionInterface.register(late, sdpa_attention_forward)
        AttentionMaskInterface.register(late, sdpa_mask)
        for model in (target, draft):
            model.config._attn_implementation = late
        decoder = named("holes.Holes").decode
        given = [list(prompt) for prompt in GIVEN]
        outputs: list[list[int]] = decoder(target, draft, given, 3, NEW_TOKENS, (EOS,))
        return outputs

    with sv.watch(target, draft) as seen:
        outputs = decode()
    assert all(forward.seen is not None for forward in seen.forwards)
    assert AttentionInterface()[late] is sdpa_attention_forward, "nothing stays behind"
    for model in (target, draft):
        model.config._attn_implementation = "sdpa"
    assert seen.audit(GIVEN, outputs, eos_token_ids=[EOS]).is_right


def lengthened() -> list[list[int]]:
    """Return more prompts than rows, of many lengths."""
    ids = [pair().tokenizer(text).input_ids for text in sv.load_prompts(limit=9)]
    return [prompt[: 8 + (i * 5) % 17] for i, prompt in enumerate(ids)]


def alike() -> list[list[int]]:
    """Return prompts of which some are the ends of others."""
    ids = [list(prompt) for prompt in prompts()]
    return [*ids, *(prompt[2:] for prompt in ids)]


@pytest.mark.sweep(16)
@pytest.mark.parametrize("given", [lengthened, alike])
@pytest.mark.parametrize(
    ("strategy", "K", "B"),
    [
        ("eqspec", 1, 4),
        ("exspec", 1, 3),
        ("exspec", 4, 2),
        ("inplace", 4, 3),
        ("masking", 4, 2),
        ("rollback", 1, 3),
    ],
)
def test_rows_that_are_moved_and_refilled_are_followed(given, strategy: str, K: int, B: int):
    ids = given()
    settings = {"num_draft_tokens": K, "batch_size": B, "max_new_tokens": 24, "progress": False}
    with sv.watch(pair().target, pair().draft) as seen:
        result = sv.generate(pair(), ids, strategy=strategy, record=True, **settings)
    report = seen.audit(ids, result.tokens, eos_token_ids=[])
    assert report.is_right, report
    assert sv.check_invariants(report.trace) == []
    assert {cost.name for cost in report.costs} <= {"finished rows", "thrown away"}


@pytest.mark.slow
def test_a_report_opens_where_it_broke() -> None:
    seen, outputs = watched(named("holes.ColumnPositions"), count=24)
    report = seen.audit(prompts(), outputs, eos_token_ids=[])
    assert list(report.frame().columns)[:4] == ["request", "row", "round", "forward"]
    first = report.faults[0]
    shown = report.step_through()
    place = {"round": first.round, "phase": "verify", "row": first.row}
    due = sv.step_through(report.trace, **place)
    assert (shown.step, shown.row) == (due.step, due.row)
    assert report.step_through(round=0).step < shown.step, "what is asked for takes precedence"
