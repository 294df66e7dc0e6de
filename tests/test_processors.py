"""Logits processors and stop strings: what a row writes in a batch is what it writes alone."""

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from conftest import check_refusal, generate, make_pair, make_prompts
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

import specviz as sv
from specviz.views.stepper.film import film

NEW_TOKENS = 20
ENDS = make_pair("llama").eos_token_ids
EOS = ENDS[0]
PROMPTS = make_prompts()[:8]
STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback", "autoregressive")
GUMBEL = sv.SamplingParams(0.8, coupling="gumbel")
CONFIGS: dict[str, dict[str, Any]] = {
    "repetition penalty": {"repetition_penalty": 1.5},
    "n-grams": {"no_repeat_ngram_size": 2},
    "least length": {"min_new_tokens": 15},
    "suppressed": {"suppress_tokens": [3, 5, 7, 11], "begin_suppress_tokens": [1, 4, 6]},
    "forced end": {"forced_eos_token_id": EOS},
    "bad words": {"bad_words_ids": [[21], [56], [51, 68]]},
    "none": {},
    "bias": {"sequence_bias": [[[12], 4.0], [[13, 14], 9.0]]},
    "decay": {"exponential_decay_length_penalty": (4, 1.3)},
    "all": {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_new_tokens": 5},
}


class Grammar:
    """Allows pairs: an even token, then an odd one that is larger, until 4 pairs and EOS.

    It fails for a text that it does not allow, as grammars do.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._prompt = list(prompt)

    def __call__(self, _: int, ids: Tensor) -> list[int]:
        written = ids.tolist()[len(self._prompt) :]
        assert ids.tolist()[: len(self._prompt)] == self._prompt
        for n, token in enumerate(written):
            assert token in self._allowed(written[:n]), f"{written} is not allowed"
        return self._allowed(written)

    def _allowed(self, written: Sequence[int]) -> list[int]:
        if len(written) == 8:
            return [EOS]
        if len(written) % 2:
            return [token for token in range(written[-1] + 1, 64, 2) if token not in ENDS]
        return [token for token in range(4, 60, 2) if token not in ENDS]


class ByPrompt(LogitsProcessor):
    """The grammar of the prompt that a text begins with, since a list is for all prompts."""

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        self._prompts = sorted(map(list, prompts), key=len, reverse=True)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        for row, ids in enumerate(input_ids.tolist()):
            prompt = next(each for each in self._prompts if ids[: len(each)] == each)
            processor = PrefixConstrainedLogitsProcessor(Grammar(prompt), 1)
            scores[row] = processor(input_ids[row : row + 1], scores[row : row + 1])[0]
        return scores


class Counting(LogitsProcessor):
    """Keeps state between calls."""

    calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        return scores * self.calls


class Once(LogitsProcessor):
    """Takes each text once, as grammars do that are advanced by one token a call."""

    length = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        assert input_ids.shape[1] > self.length
        self.length = input_ids.shape[1]
        return scores


def run(strategy: str = "inplace", **options: Any) -> sv.Result:
    options = {"batch_size": 3, "num_draft_tokens": 4, "max_new_tokens": NEW_TOKENS} | options
    return generate(make_pair("llama"), PROMPTS, strategy=strategy, **options)


def alone(prompts: list[list[int]] = PROMPTS, **options: Any) -> list[list[int]]:
    """Return what `generate` of transformers writes for each prompt by itself."""
    target = make_pair("llama").target
    rows = [torch.tensor([prompt]) for prompt in prompts]
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False} | options
    outputs = [target.generate(row, attention_mask=torch.ones_like(row), **options) for row in rows]
    return [output[0, row.shape[1] :].tolist() for row, output in zip(rows, outputs, strict=True)]


@cache
def due(name: str) -> list[list[int]]:
    return alone(**CONFIGS[name])


@pytest.mark.sweep(6)
@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_row_writes_what_generate_writes_alone(name: str, strategy: str, batch_size: int) -> None:
    config = GenerationConfig(**CONFIGS[name])
    result = run(strategy, batch_size=batch_size, generation_config=config)
    assert result.tokens == due(name)
    assert (due(name) != due("none")) == (name != "none")


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_grammar_is_asked_of_allowed_texts_alone(strategy: str, batch_size: int) -> None:
    found = run(strategy, batch_size=batch_size, logits_processor=ByPrompt(PROMPTS)).tokens
    expected = [
        alone([prompt], prefix_allowed_tokens_fn=Grammar(prompt))[0] for prompt in PROMPTS[:2]
    ]
    assert found[:2] == expected
    assert all(len(tokens) == 9 and tokens[-1] == EOS for tokens in found)


@pytest.mark.parametrize(
    "options",
    [
        {"drafter": sv.drafter("tree", children=2, depth=3)},
        {"drafter": sv.drafter("static_tree", paths=[[0], [1], [0, 0]]), "num_draft_tokens": 3},
        {"drafter": "lookup"},
        {"drafter": sv.drafter("synthetic", rates=[0.9, 0.7, 0.5, 0.3])},
        {"selector": "tetris", "num_draft_tokens": 2},
        {"lanes": 2, "batch_size": 4},
        {"deterministic": True},
        {"num_draft_tokens": "auto"},
    ],
    ids=str,
)
def test_options_keep_the_text(options: dict[str, Any]) -> None:
    config = GenerationConfig(**CONFIGS["all"])
    assert run(**options, generation_config=config).tokens == due("all")
    grammar = ByPrompt(PROMPTS)
    assert run(**options, logits_processor=grammar).tokens == run(logits_processor=grammar).tokens


def test_drafts_of_a_grammar_are_accepted() -> None:
    """The draft model's logits are processed, too."""
    grammar = run(logits_processor=ByPrompt(PROMPTS)).summary["mean_acceptance_length"].item()
    assert (
        grammar
        > run(drafter="lookup", logits_processor=ByPrompt(PROMPTS))
        .summary["mean_acceptance_length"]
        .item()
    )
    assert grammar > 2


@pytest.mark.parametrize("strategy", ["eqspec", "exspec", "masking"])
def test_sampled_texts_are_those_of_the_target(strategy: str) -> None:
    options = {"sampling": GUMBEL, "generation_config": GenerationConfig(**CONFIGS["all"])}
    expected = run("autoregressive", batch_size=1, **options).tokens
    assert run(strategy, **options).tokens == expected
    assert expected != run("autoregressive", batch_size=1, sampling=GUMBEL).tokens


@pytest.mark.parametrize("coupling", ["rejection", "gumbel"])
def test_drafts_are_judged_by_processed_logits(coupling: str) -> None:
    """p and q of every place, from the definition: `Rejection` is exact given those."""
    pair = make_pair("llama")
    processors = [RepetitionPenaltyLogitsProcessor(1.7)]
    events = sv.decode(
        pair, PROMPTS, strategy="masking", batch_size=3, num_draft_tokens=3,
        max_new_tokens=NEW_TOKENS, logits_processor=processors,
        sampling=sv.SamplingParams(0.8, coupling=coupling),
    )  # fmt: skip
    judged = 0
    for event in events:
        if event.phase == "draft":
            draft = event.draft
            texts = [[*row.request.prompt, *row.output] for row in event.state.batch.rows]
            finished = [row.finished for row in event.state.batch.rows]
        if event.phase != "verify":
            continue
        for row, text in enumerate(texts):
            tokens = draft.tokens[row].tolist()
            for j in range(0 if finished[row] else len(tokens) + 1):
                if set(ENDS) & set(tokens[:j]):
                    break
                ids = torch.tensor([[*text, *tokens[:j]]])
                for model, found in ((pair.target, event.logits), (pair.draft, draft.logits)):
                    if j == found.shape[1]:
                        continue
                    logits = model(ids).logits[:, -1].float()
                    logits = LogitsProcessorList(processors)(ids, logits)
                    torch.testing.assert_close(found[row, j], logits[0], atol=1e-4, rtol=1e-4)
                    judged += 1
    assert judged > 200


def test_what_the_checkpoint_ships_is_applied() -> None:
    pair = copy.deepcopy(make_pair("llama"))
    pair.target.generation_config.update(repetition_penalty=1.5, no_repeat_ngram_size=2)
    options = {"batch_size": 3, "max_new_tokens": NEW_TOKENS}
    with pytest.warns(UserWarning, match="pass generation_config='target'"):
        plain = generate(pair, PROMPTS, **options)
    found = generate(pair, PROMPTS, generation_config="target", record=True, **options)
    config = {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}
    assert found.tokens == alone(**config) != plain.tokens
    names = ["RepetitionPenaltyLogitsProcessor", "NoRepeatNGramLogitsProcessor"]
    assert found.trace.meta["logits_processor"] == names
    assert not sv.check_invariants(found.trace)
    deep = sv.check_invariants(found.trace, deep=True, pair=pair)
    assert not deep
    assert "logits were processed" in deep.unchecked[0]


def test_a_config_that_samples_says_how() -> None:
    config = GenerationConfig(do_sample=True, temperature=0.7, top_k=9, top_p=0.8)
    found = run(generation_config=config, seed=3)
    sampling = sv.SamplingParams(0.7, top_k=9, top_p=0.8)
    assert found.tokens == run(sampling=sampling, seed=3).tokens
    given = run(generation_config=config, sampling=GUMBEL, seed=3)
    assert given.tokens == run(sampling=GUMBEL, seed=3).tokens


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_row_ends_at_the_first_token_that_completes_a_stop_string(
    strategy: str, embedded: sv.Pair
) -> None:
    stops = ["self.", "\n\n", "):\n    "]
    prompts = sv.load_prompts(limit=6)
    options = {"batch_size": 3, "max_new_tokens": 32, "strategy": strategy}
    whole = generate(embedded, prompts, **options)
    expected, ends = [], []
    for tokens in whole.tokens:
        texts = (embedded.tokenizer.decode(tokens[: n + 1]) for n in range(len(tokens)))
        stop = next((n for n, text in enumerate(texts) if any(s in text for s in stops)), None)
        expected.append(tokens if stop is None else tokens[: stop + 1])
        ends.append("stop" if stop is not None else None)
    found = generate(embedded, prompts, stop=stops, record=True, **options)
    assert found.tokens == expected
    assert [status if status == "stop" else None for status in found.status] == ends
    assert ends.count("stop") > 1
    assert not sv.check_invariants(found.trace)
    words = str(film(found.trace)["rounds"])
    assert "finished with a stop string" in words


def test_a_record_that_says_stop_without_stop_strings_is_wrong(embedded: sv.Pair) -> None:
    options = {"batch_size": 3, "max_new_tokens": 32, "record": True}
    trace = generate(embedded, sv.load_prompts(limit=3), stop="\n", **options).trace
    assert not sv.check_invariants(trace)
    del trace.meta["stop"]
    assert {each.rule for each in sv.check_invariants(trace)} == {"budget"}


def test_stop_strings_of_a_config_are_taken(embedded: sv.Pair) -> None:
    prompts = sv.load_prompts(limit=3)
    options = {"batch_size": 3, "max_new_tokens": 32}
    config = GenerationConfig(stop_strings=["\n"])
    config.eos_token_id = embedded.eos_token_ids[0]
    found = generate(embedded, prompts, generation_config=config, **options)
    assert found.tokens == generate(embedded, prompts, stop="\n", **options).tokens
    given = generate(embedded, prompts, generation_config=config, stop=["def"], **options)
    assert given.tokens == generate(embedded, prompts, stop="def", **options).tokens
    without = generate(embedded, prompts, generation_config=config, stop=[], **options)
    assert without.tokens == generate(embedded, prompts, **options).tokens


@pytest.mark.parametrize(
    ("options", "begins", "part"),
    [
        ({"logits_processor": Counting()}, "logits_processor=Counting cannot", "second time"),
        ({"logits_processor": Once()}, "logits_processor=Once cannot", "it raised Assertion"),
        ({"logits_processor": [max]}, "logits_processor must be", "LogitsProcessor"),
        ({"stop": [""]}, "stop must be", "none of them empty"),
        ({"stop": 3}, "stop must be", "got 3"),
        ({"stop": "a"}, "stop=('a',) needs text", "tokenizer"),
        ({"generation_config": "draft"}, "generation_config must be", "'target'"),
        (
            {"generation_config": GenerationConfig(guidance_scale=2.0)},
            "generation_config has guidance_scale=2.0",
            "not supported",
        ),
        (
            {"generation_config": GenerationConfig(do_sample=True, min_p=0.1)},
            "generation_config has min_p=0.1",
            "not supported",
        ),
        (
            {"generation_config": GenerationConfig(eos_token_id=9)},
            "generation_config has eos_token_id=9",
            "[5, 9, 17, 40]",
        ),
    ],
    ids=range(10),
)
def test_what_cannot_be_applied_is_refused(options: dict[str, Any], begins: str, part: str) -> None:
    check_refusal(lambda: run(**options), begins, part)
