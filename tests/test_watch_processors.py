"""Watched decoders that process scores or end texts at stop strings."""

from functools import cache
from typing import Any

import pytest
import torch
from conftest import check_refusal, generate
from decoder_work import K, pair, prompts
from decoders import processed
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

import specviz as sv

NEW_TOKENS = 24
PENALTY = RepetitionPenaltyLogitsProcessor(1.4)
PROCESSORS: dict[str, list[LogitsProcessor]] = {
    "penalty": [PENALTY],
    "n-grams": [NoRepeatNGramLogitsProcessor(2)],
    "both": [PENALTY, NoRepeatNGramLogitsProcessor(3)],
    "bias": [SequenceBiasLogitsProcessor([[[5, 6], 3.0], [[4], 2.0], [[16], 4.0]])],
    "bigrams": [SequenceBiasLogitsProcessor([[[283, 340], 20.0], [[340, 283], 20.0]])],
    "least length": [MinNewTokensLengthLogitsProcessor(0, 40, [16])],
    "none": [],
}
WRONG = {
    processed.NotProcessed: "scores are not processed",
    processed.FirstColumnAlone: "scores are processed behind the pending token alone",
    processed.CommittedText: "the processors do not see the drafts before a token",
    processed.OneShort: "the processors do not see the last token before it",
    processed.AllDrafts: "the processors see all drafts of a round",
    processed.RejectedKept: "the processors see drafts that were rejected",
    processed.PromptLeftOut: "the processors do not see the prompt",
    processed.OtherRow: "the processors see the text of the row before it",
    processed.AcceptedRaw: "drafts are judged by scores that are not processed",
    processed.LeftPadded: "",
}
WRONG_STOPS = (
    processed.StopAtTheEnd,
    processed.StopInTheRound,
    processed.StopInOneToken,
    processed.StopByIds,
    processed.StopOneRoundLate,
)


@cache
def stops() -> tuple[str, ...]:
    """Return strings from the middle of the texts, of several tokens each."""
    texts = [pair().tokenizer.decode(tokens) for tokens in due("none")]
    return tuple(text[len(text) // 2 :][:9] for text in texts[:3])


def report_of(
    case: type[processed.Processed], name: str = "penalty", stop: Any = None, **options: Any
) -> Any:
    models = pair()
    processors = PROCESSORS[name]
    rows = [list(prompt) for prompt in prompts()]
    given = {"logits_processor": processors or None, "stop": stop, "tokenizer": models.tokenizer}
    with sv.watch(models.target, models.draft, **given) as seen:
        outputs = case.decode(
            models.target, models.draft, rows, K, NEW_TOKENS,
            processors=processors, stops=stop or (), tokenizer=models.tokenizer,
        )  # fmt: skip
    return seen.audit(rows, outputs, **options), outputs


@cache
def due(name: str) -> list[list[int]]:
    found = []
    for prompt in prompts():
        ids = torch.tensor([prompt])
        text = pair().target.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS,
            logits_processor=LogitsProcessorList(PROCESSORS[name]), pad_token_id=0,
            eos_token_id=None,
        )  # fmt: skip
        found.append(text[0, len(prompt) :].tolist())
    return found


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("case", [processed.Processed, processed.DraftsToo])
def test_decoders_that_process_scores_rightly_are_right(
    case: type[processed.Processed], name: str
) -> None:
    report, outputs = report_of(case, name, max_new_tokens=NEW_TOKENS)
    assert outputs == due(name)
    assert report.is_right, str(report)
    assert not any(cost.name == "thrown away" for cost in report.costs)
    assert not sv.check_invariants(report.trace)


@pytest.mark.parametrize("case", [processed.Processed, processed.DraftsToo])
@pytest.mark.parametrize("name", ["none", "both"])
def test_decoders_that_stop_rightly_are_right(case: type[processed.Processed], name: str) -> None:
    report, outputs = report_of(case, name, stops(), max_new_tokens=NEW_TOKENS)
    assert len({len(each) for each in outputs}) > 1
    assert report.is_right, str(report)


@pytest.mark.parametrize("strategy", ["eqspec", "exspec", "masking", "rollback"])
def test_the_strategies_of_specviz_are_right(strategy: str) -> None:
    models = pair()
    given = {"logits_processor": PROCESSORS["both"], "stop": stops()}
    rows = [list(prompt) for prompt in prompts()]
    with sv.watch(models.target, models.draft, tokenizer=models.tokenizer, **given) as seen:
        outputs = generate(
            models, rows, strategy=strategy, batch_size=3, max_new_tokens=NEW_TOKENS, **given
        ).tokens
    report = seen.audit(rows, outputs, max_new_tokens=NEW_TOKENS)
    assert report.is_right, str(report)


@pytest.mark.parametrize("name", ["penalty", "n-grams", "bias"])
def test_assisted_generation_of_transformers_is_right(name: str) -> None:
    models = pair()
    processors = PROCESSORS[name]
    outputs = []
    with sv.watch(models.target, models.draft, logits_processor=processors) as seen:
        for prompt in prompts():
            ids = torch.tensor([prompt])
            text = models.target.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                max_new_tokens=NEW_TOKENS, assistant_model=models.draft, eos_token_id=None,
                logits_processor=LogitsProcessorList(processors),
            )  # fmt: skip
            outputs.append(text[0, len(prompt) :].tolist())
    report = seen.audit([list(prompt) for prompt in prompts()], outputs)
    assert outputs == due(name)
    assert not report.faults, str(report)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("case", "name"),
    [
        (case, name)
        for case in WRONG
        # With a penalty the last token makes no difference, since none follows itself here.
        for name in (("bigrams",) if case is processed.OneShort else ("penalty", "both"))
    ],
)
def test_a_wrong_text_behind_processed_scores_is_named(
    case: type[processed.Processed], name: str
) -> None:
    report, outputs = report_of(case, name)
    assert outputs != due(name)
    first = report.faults[0]
    assert first.rule in ("acceptance", "bonus")
    assert first.rule == case.rule or case is not processed.AcceptedRaw
    assert WRONG[case] in first.cause, first.cause
    if WRONG[case]:
        assert "Process the scores" in first.advice
    wrong = [i for i, (a, b) in enumerate(zip(outputs, due(name), strict=True)) if a != b]
    assert report.wrong == wrong


@pytest.mark.parametrize("case", WRONG_STOPS)
def test_a_text_that_goes_on_behind_a_stop_string_is_named(case: type[processed.Processed]) -> None:
    report, outputs = report_of(case, "none", stops())
    _, right = report_of(processed.Processed, "none", stops())
    wrong = [i for i, (a, b) in enumerate(zip(outputs, right, strict=True)) if a != b]
    assert wrong
    assert report.wrong == wrong
    first = report.faults[0]
    assert first.rule == "eos"
    stop = len(right[first.request]) - 1
    assert f"new token {stop} completes a stop string" in first.cause


def test_a_text_that_stops_too_early_is_named() -> None:
    report, _ = report_of(processed.StopTooEarly, "none", stops(), max_new_tokens=NEW_TOKENS)
    assert report.faults[0].rule == "budget"
    assert "not with EOS or a stop string" in report.faults[0].cause


def test_what_the_checkpoint_ships_is_judged() -> None:
    models = pair()
    rows = [list(prompt) for prompt in prompts()]
    config = GenerationConfig(repetition_penalty=1.4, eos_token_id=models.eos_token_ids)
    outputs = generate(
        models, rows, batch_size=3, max_new_tokens=NEW_TOKENS, generation_config=config
    ).tokens
    for given, is_right in (({"generation_config": config}, True), ({}, False)):
        with sv.watch(models.target, models.draft, **given) as seen:
            again = generate(
                models, rows, batch_size=3, max_new_tokens=NEW_TOKENS, generation_config=config
            ).tokens
        assert again == outputs
        assert seen.audit(rows, outputs).is_right == is_right


def test_texts_cannot_be_concluded_from_forwards_alone() -> None:
    models = pair()
    rows = [list(prompt) for prompt in prompts()]
    with sv.watch(models.target, models.draft, logits_processor=PENALTY) as seen:
        generate(models, rows, batch_size=3, max_new_tokens=4, logits_processor=PENALTY)
    check_refusal(lambda: seen.audit(rows), "outputs must be given")
