"""Watched decoders that draft from the target's hidden states: with MTP layers, and with DFlash."""

from typing import Any

import pytest
import tiny_drafters
import torch
from conftest import check_refusal
from decoder_work import watched
from decoders import dflash, mtp
from decoders.base import Decoder
from tiny_drafters import NEW_TOKENS, PROMPTS, dflash_of, mtp_of, target_of, texts_of, written_by
from transformers.modeling_layers import MtpModel

import specviz as sv

# Families, and how many MTP layers they have.
FAMILIES = [("llama", 1), ("glm4_moe", 2), ("deepseek_v3", 3)]
# {a fault: what the cause says}
MTP_FAULTS: dict[type[Decoder], str] = {
    mtp.HiddenOneOff: "has the hidden state at 0 instead of that at 1",
    mtp.Rejected: "of a rejected draft, instead of that at",
    mtp.EntriesKept: "and was not read again",
    mtp.OwnOutputKept: "has what layer 0 gave in an earlier call instead of that at",
    mtp.FirstDropped: "drafts are verified one place too early",
    mtp.PositionsDrift: "has position",
}
DFLASH_FAULTS: dict[type[Decoder], str] = {
    dflash.ContextOneOff: "the context at 1, made in forward 1, has the hidden state at 0 instead",
    dflash.OtherLayer: "that the target has nowhere in these rows",
    dflash.Causal: "place 1 of the block does not attend to place 2",
    dflash.PlaceZero: "drafts are verified one place too late",
    dflash.PositionsOff: "place 0 of the block, made in forward 1, has position 6 instead of 7",
    dflash.ShortContext: "does not attend to the context at 0",
}


def report_of(case: type[Decoder], family: str, layers: int, drafter: Any, K: int) -> Any:
    models = target_of(family, layers), drafter
    seen, outputs = watched(case, models, PROMPTS, K, NEW_TOKENS)
    assert outputs == texts_of(family, layers)
    report = seen.audit(PROMPTS, outputs, max_new_tokens=NEW_TOKENS)
    assert report.verdict.startswith("right: ")
    return report


def drafter_cost(report: Any) -> str:
    return next((cost.sentence for cost in report.costs if cost.name == "drafter"), "")


@pytest.mark.sweep(4)
@pytest.mark.parametrize("K", [1, 2, 4])
@pytest.mark.parametrize("case", [mtp.Mtp, mtp.LeftPadded, mtp.Refilled])
@pytest.mark.parametrize(("family", "layers"), FAMILIES)
def test_right_mtp_decoders_are_right(
    case: type[Decoder], family: str, layers: int, K: int
) -> None:
    report = report_of(case, family, layers, mtp_of(family, layers), K)
    assert report.costs == []
    assert report.notes == []
    assert report.tokens_per_round > 1.2, "some drafts are accepted, and some are not"


@pytest.mark.parametrize("case", MTP_FAULTS)
def test_faults_of_mtp_decoders_are_named(case: type[Decoder]) -> None:
    layers = 1 if case is mtp.OwnOutputKept else 2
    family = dict(map(reversed, FAMILIES))[layers]
    report = report_of(case, family, layers, mtp_of(family, layers), 4)
    assert MTP_FAULTS[case] in drafter_cost(report), report


@pytest.mark.parametrize("K", [2, tiny_drafters.BLOCK - 1])
@pytest.mark.parametrize("family", ["llama", "glm4_moe"])
def test_right_dflash_decoders_are_right(family: str, K: int) -> None:
    report = report_of(dflash.DFlash, family, 1, dflash_of(family), K)
    assert report.costs == []
    assert report.notes == []


@pytest.mark.parametrize("case", DFLASH_FAULTS)
def test_faults_of_dflash_decoders_are_named(case: type[Decoder]) -> None:
    report = report_of(case, "llama", 1, dflash_of("llama"), tiny_drafters.BLOCK - 1)
    assert DFLASH_FAULTS[case] in drafter_cost(report), report


@pytest.mark.sweep(2)
@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize(("family", "layers"), FAMILIES)
def test_generate_with_mtp_layers_is_right(
    family: str, layers: int, follow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_of(family, layers)
    monkeypatch.setattr(
        MtpModel, "from_pretrained", lambda *_, **__: mtp_of(family, layers)
    )  # which a checkpoint has
    with sv.watch(target, "mtp" if follow else None) as seen:
        outputs = [written_by(target, prompt, use_mtp=True) for prompt in PROMPTS]
    report = seen.audit(PROMPTS, outputs)
    assert report.verdict.startswith("right: ")
    assert report.costs == []
    calls = [forward for forward in seen.forwards if forward.model == "drafter"]
    assert bool(calls) == follow


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("family", ["llama", "lfm2"])
def test_generate_with_dflash_is_right(family: str, follow: bool) -> None:
    target, drafter = target_of(family, 1), dflash_of(family)
    with sv.watch(target, drafter if follow else None) as seen:
        outputs = [
            written_by(target, prompt, assistant_model=drafter, speculation_type="dflash")
            for prompt in PROMPTS
        ]
    report = seen.audit(PROMPTS, outputs)
    assert report.verdict.startswith("right: ")
    assert report.costs == []


@pytest.mark.parametrize("numbers", [(0, 0, 0, 0), (1, 0, 1, 0, 2, 1)])
@pytest.mark.parametrize("case", [mtp.Mtp, mtp.Refilled])
def test_equal_prompts_that_are_read_whole_are_told_apart(
    case: type[Decoder], numbers: tuple[int, ...]
) -> None:
    prompts = [PROMPTS[number] for number in numbers]
    prompts[-1] = [*prompts[-1], 5, 6]  # and one that begins alike
    models = target_of("llama", 1), mtp_of("llama", 1)
    seen, outputs = watched(case, models, prompts, 2, NEW_TOKENS)
    report = seen.audit(prompts, outputs, max_new_tokens=NEW_TOKENS)
    assert report.verdict.startswith("right: ")
    assert report.costs == []


@pytest.mark.parametrize("strategy", ["inplace", "exspec"])
@pytest.mark.parametrize("batch_size", [2, 5])
def test_a_run_with_a_head_fits_a_record(strategy: str, batch_size: int, embedded: sv.Pair) -> None:
    """Its prompts are read with logits, and rows are filled up by their last tokens again."""
    prompts = [embedded.tokenizer(text).input_ids for text in sv.load_prompts(limit=5)]
    run = {"strategy": strategy, "batch_size": batch_size, "progress": False}
    with sv.watch(embedded.target) as seen:
        outputs = sv.generate(embedded, prompts, drafter="mtp", max_new_tokens=16, **run).tokens
    report = seen.audit(prompts, outputs)
    assert report.verdict.startswith("right: ")
    assert not sv.check_invariants(report.trace)


def test_of_drawn_drafts_the_inputs_are_judged() -> None:
    class DrawnOneOff(mtp.HiddenOneOff, mtp.Sampled):
        pass

    Decoder.designs.remove(DrawnOneOff)
    models = target_of("glm4_moe", 2), mtp_of("glm4_moe", 2)
    for case in (mtp.Sampled, DrawnOneOff):
        seen, outputs = watched(case, models, PROMPTS, 3, NEW_TOKENS)
        report = seen.audit(PROMPTS, outputs, greedy=False)
        assert report.verdict.startswith("right, as far as the forwards of 4 texts go")
        assert ("instead of that at 1" in drafter_cost(report)) == (case is DrawnOneOff)


@pytest.mark.parametrize("case", [mtp.Sampled, mtp.MatchesBest])
def test_drafts_that_are_compared_with_the_best_token_change_the_distribution(case: Any) -> None:
    target = sv.tiny_pair().target
    target.config.num_mtp_layers = 1
    torch.manual_seed(0)
    drafter = MtpModel(target, 1).eval()

    def decode(target: Any, _: Any, prompts: Any, seed: int, count: int) -> Any:
        return case.decode(target, drafter, prompts, 2, count, temperature=0.8, seed=seed)

    report = sv.audit_sampling(
        decode, target, temperature=0.8, prompts=[[1, 4, 4]] * 8, runs=60, causes=False,
        progress=False,
    )  # fmt: skip
    assert report.is_right == (case is mtp.Sampled), report


def test_a_drafter_that_does_not_exist_is_refused() -> None:
    check_refusal(
        lambda: sv.watch(target_of("llama", 1), "dflash"), "draft must be a model", "pass a "
    )


def test_a_drafter_that_is_not_called_is_noted() -> None:
    target = target_of("llama", 1)
    for drafter in ("mtp", mtp_of("llama", 1), dflash_of("llama")):
        with sv.watch(target, drafter) as seen:
            outputs = [written_by(target, prompt) for prompt in PROMPTS]
        (note,) = seen.audit(PROMPTS, outputs).notes
        assert note.endswith("so drafts are not judged")
