"""`audit`: log-probabilities that came with the candidate's texts, right ones and wrong ones."""

import functools
import math
from typing import Any

import numpy as np
import pytest
from conftest import NEW_TOKENS, generate, make_pair, make_prompts

import specviz as sv
from specviz.checks.audit.logprobs import (
    BASE,
    BEFORE,
    CONSTANT,
    DRAFT,
    NEXT,
    NO_REASON,
    OTHER_PROMPT,
    ZERO,
)
from specviz.checks.audit.target import Target
from specviz.checks.noise import _forwards, score_text
from specviz.checks.scores import places_of, recorded_scores

DTYPES = ("float32", "bfloat16")
PROMPTS = (0, 3, 6, 10)  # the last text ends with an EOS, after 9 tokens


@functools.cache
def pair(dtype: str) -> sv.Pair:
    return sv.load_pair(dtype=dtype)


@functools.cache
def run(dtype: str, strategy: str = "inplace") -> sv.Result:
    prompts = [sv.load_prompts()[i] for i in PROMPTS]
    options = {"batch_size": 3, "num_draft_tokens": 4, "max_new_tokens": NEW_TOKENS}
    return generate(pair(dtype), prompts, strategy=strategy, record=True, **options)


def texts_of(found: sv.Result) -> list[tuple[list[int], list[int]]]:
    return list(zip(found.prompts, found.tokens, strict=True))


@functools.cache
def right(dtype: str) -> list[list[float]]:
    return [score_text(pair(dtype), text).chosen.tolist() for text in texts_of(run(dtype))]


def drafts(dtype: str) -> list[list[float]]:
    draft = Target(pair(dtype).draft)
    return [score_text(draft, text).chosen.tolist() for text in texts_of(run(dtype))]


def outputs(found: sv.Result, logprobs: Any = None) -> list[dict[str, Any]]:
    """A run as a file has it, with these log-probabilities."""
    records = [{"prompt": prompt, "token_ids": new} for prompt, new in texts_of(found)]
    for record, values in zip(records, logprobs or [None] * len(records), strict=True):
        record["logprobs"] = values
    return records


def in_a_batch(models: sv.Pair, found: sv.Result, rows: int, step: int) -> list[list[float]]:
    """The log-probabilities of a run's tokens, from padded batches, `step` tokens a forward."""
    texts = texts_of(found)
    values: list[list[float]] = [[] for _ in texts]
    for first in range(0, len(texts), rows):
        group = texts[first : first + rows]
        for m, logits in _forwards(models, group, step):
            logprobs = logits.log_softmax(-1)
            for row, (_, new) in enumerate(group):
                for j, token in enumerate(new[m : m + step]):
                    values[first + row].append(float(logprobs[row, j, token]))
    return values


def from_record(found: sv.Result) -> list[list[float | None]]:
    values = []
    for scores, new in zip(recorded_scores(found.trace), found.tokens, strict=True):
        pairs = zip(places_of(scores), new, strict=True)
        values.append([place.get(token) for place, token in pairs])
    return values


def shifted(values: list[float], by: int) -> list[float]:
    return [*values[by:], *[-0.5] * by] if by > 0 else [*[-0.5] * -by, *values[:by]]


WRONG = {
    "zero": (lambda own: [[0.0] * len(each) for each in own], ZERO),
    "zero behind the first": (
        lambda own: [[each[0], *[0.0] * (len(each) - 1)] for each in own],
        ZERO,
    ),
    "constant": (lambda own: [[-1.25] * len(each) for each in own], CONSTANT),
    "next": (lambda own: [shifted(each, 1) for each in own], NEXT),
    "before": (lambda own: [shifted(each, -1) for each in own], BEFORE),
    "next, but not the first": (
        lambda own: [[each[0], *shifted(each, 1)[1:]] for each in own],
        NEXT,
    ),
    "base 10": (lambda own: [[x / math.log(10) for x in each] for each in own], BASE.format(10)),
    "base 2": (lambda own: [[x / math.log(2) for x in each] for each in own], BASE.format(2)),
    "random": (
        lambda own: [np.random.default_rng(0).uniform(-3, 0, len(each)).tolist() for each in own],
        NO_REASON,
    ),
}


@pytest.mark.parametrize(("dtype", "decimals"), [("float32", 17), ("bfloat16", 2)])
@pytest.mark.parametrize("kind", WRONG)
def test_what_wrong_values_are_is_named(kind: str, dtype: str, decimals: int):
    make, explanation = WRONG[kind]
    said = [[round(x, decimals) for x in each] for each in make(right(dtype))]
    found = sv.audit(outputs(run(dtype)), outputs(run(dtype), said), pair(dtype))
    assert found.passed
    # Of few tokens, with an exception among them, too little fits.
    assert set(found.logprobs["explanation"]) <= {explanation, NO_REASON}
    assert set(found.logprobs["explanation"][:3]) == {explanation}
    for i, entry in found.logprobs.iterrows():
        at = entry["token"]
        off = abs(right(dtype)[i][at] - said[i][at])
        assert entry["difference"] == pytest.approx(off, abs=1e-5)
        assert off > found.limit
    assert explanation in found.notes[0]
    assert found.notes[0] in str(found)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_the_draft_are_named_with_a_pair_alone(dtype: str):
    candidate = outputs(run(dtype), drafts(dtype))
    found = sv.audit(outputs(run(dtype)), candidate, pair(dtype))
    assert set(found.logprobs["explanation"]) == {DRAFT}
    target = sv.audit(outputs(run(dtype)), candidate, pair(dtype).target)
    assert set(target.logprobs["explanation"]) == {NO_REASON}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_row_that_values_come_from_is_named(dtype: str):
    said = list(right(dtype))
    said[1], said[2] = said[2], said[0]
    found = sv.audit(outputs(run(dtype)), outputs(run(dtype), said), pair(dtype))
    wrong = found.logprobs[found.logprobs["explanation"] != ""]
    assert dict(wrong["explanation"]) == {1: OTHER_PROMPT.format(2), 2: OTHER_PROMPT.format(0)}


def rounded(decimals: int) -> Any:
    return lambda dtype: [[round(x, decimals) for x in each] for each in right(dtype)]


RIGHT = {
    "as they are": right,
    "alone, token by token": lambda dtype: in_a_batch(pair(dtype), run(dtype), 1, 1),
    "in a batch": lambda dtype: in_a_batch(pair(dtype), run(dtype), 6, 5),
    "in another batch": lambda dtype: in_a_batch(pair(dtype), run(dtype), 4, 3),
    "from the record": lambda dtype: from_record(run(dtype)),
    "two decimals": rounded(2),
    "three decimals": rounded(3),
    "four decimals": rounded(4),
    "of a batch, rounded": lambda dtype: [
        [round(x, 2) for x in each] for each in in_a_batch(pair(dtype), run(dtype), 3, 5)
    ],
    "some are missing": lambda dtype: [
        [None if i % 3 else x for i, x in enumerate(each)] for each in right(dtype)
    ],
    "none in a text": lambda dtype: [None, [None] * len(right(dtype)[1]), *right(dtype)[2:]],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", RIGHT)
def test_right_values_are_right(kind: str, dtype: str):
    said = RIGHT[kind](dtype)
    found = sv.audit(outputs(run(dtype)), outputs(run(dtype), said), pair(dtype))
    assert found.notes == ()
    assert (found.logprobs["explanation"] == "").all()
    is_compared = found.logprobs["difference"].notna()
    known = [each is not None and any(x is not None for x in each) for each in said]
    assert is_compared.tolist() == known
    alone = sv.audit(outputs(run(dtype), right(dtype)), outputs(run(dtype), said))
    assert alone.notes == ()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_right_values_of_texts_with_eos_are_right(name: str, dtype: str):
    """Texts of random models, short ones, unlikely ones and padded ones among them."""
    import torch

    models = make_pair(name, getattr(torch, dtype))
    options = {"batch_size": 5, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS}
    found = generate(models, make_prompts(), strategy="eqspec", **options)
    assert min(map(len, found.tokens)) < NEW_TOKENS
    candidate = outputs(found, in_a_batch(models, found, 10, 4))
    for output in candidate:
        missing = NEW_TOKENS - len(output["token_ids"])
        output["token_ids"] = [*output["token_ids"], *[0] * missing]
        output["logprobs"] = [*output["logprobs"], *[0.0] * missing]
    audited = sv.audit(outputs(found), candidate, models)
    assert audited.passed
    assert (audited.logprobs["explanation"] == "").all()
    assert audited.logprobs["difference"].notna().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_right_values_of_a_wrong_text_are_right(dtype: str):
    """Tokens that the target would never write have more noise."""
    found = run(dtype)
    candidate = outputs(found)
    generator = np.random.default_rng(0)
    for output in candidate:
        text = np.array(output["token_ids"])
        text[generator.random(len(text)) < 0.4] = 77
        output["token_ids"] = text.tolist()
        scored = (output["prompt"], output["token_ids"])
        logprobs = [_forwards(pair(dtype), [scored], 1)]
        output["logprobs"] = [
            float(values[0, 0].log_softmax(-1)[token])
            for (_, values), token in zip(logprobs[0], output["token_ids"], strict=True)
        ]
    audited = sv.audit(outputs(found), candidate, pair(dtype))
    assert not audited.passed
    assert (audited.logprobs["explanation"] == "").all()


def test_nothing_is_compared_without_ids_or_where_scores_are_processed():
    found, said = run("float32"), WRONG["zero"][0](right("float32"))
    names = [
        {"prompt": prompt, "tokens": ["x"] * len(values), "text": text, "logprobs": values}
        for prompt, text, values in zip(found.prompts, found.texts, said, strict=True)
    ]
    audited = sv.audit(outputs(found), names, pair("float32"))
    assert audited.logprobs["difference"].isna().all()
    models = sv.load_pair(dtype="float32")
    models.target.generation_config.repetition_penalty = 1.3
    audited = sv.audit(outputs(found), outputs(found, said), models)
    assert audited.logprobs["difference"].isna().all()
    assert "repetition_penalty" in str(audited)


# Without a target.

AT = 40


def own(change: Any = None, gap: float = 0.02, off: float = 0.0) -> list[dict[str, Any]]:
    """A text with top candidates; the last token is a choice of two, `gap` apart, at index AT."""
    values = np.random.default_rng(1).uniform(-2, -0.05, AT).tolist()
    values = [x + off for x in values]
    top = [[[3, x], [9, -4.0]] for x in values]
    if change is not None:
        values = change(values)
        top = [[[3, x], *rest] for x, (_, *rest) in zip(values, top, strict=True)]
    return [
        {
            "prompt": [1, 2],
            "token_ids": [3] * AT + [5],
            "logprobs": [*values, -0.7],
            "top_logprobs": [*top, [[5, -0.7], [6, -0.7 - gap]]],
            "max_tokens": AT + 1,
        }
    ]


def other(outputs: list[dict[str, Any]], gap: float) -> list[dict[str, Any]]:
    outputs[0]["token_ids"][-1] = 6
    outputs[0]["logprobs"][-1] = -0.7
    outputs[0]["top_logprobs"][-1] = [[6, -0.7], [5, -0.7 - gap]]
    return outputs


IMPOSSIBLE = {
    "zero": lambda values: [0.0] * AT,
    "constant": lambda values: [-0.4] * AT,
    "next": lambda values: shifted(values, 1),
    "before": lambda values: shifted(values, -1),
    "in doubt": lambda values: [min(x + 0.3, 0) for x in values],
}


def test_a_small_change_is_noise():
    found = sv.audit(own(gap=0.02), other(own(gap=0.02, off=-0.02), 0.02), dtype="bfloat16")
    assert found.prompts["verdict"].tolist() == ["near tie"]
    assert 0.01 < found.noise < 0.05


@pytest.mark.parametrize("kind", IMPOSSIBLE)
@pytest.mark.parametrize("gap", [0.2, 0.6])
def test_impossible_values_are_no_noise(kind: str, gap: float):
    candidate = other(own(), gap)
    source = own(IMPOSSIBLE[kind])[0]
    candidate[0]["logprobs"][:AT] = source["logprobs"][:AT]
    if kind != "in doubt":
        candidate[0]["top_logprobs"][:AT] = source["top_logprobs"][:AT]
    found = sv.audit(own(gap=gap), candidate, dtype="bfloat16")
    assert found.prompts["verdict"].tolist() == ["unknown"]
    assert math.isnan(found.noise)
    assert not found.passed
    assert "log-probabilities cannot be right" in found.notes[0]
    control = sv.audit(own(gap=gap), candidate, control=own(gap=gap, off=-0.01), dtype="bfloat16")
    assert control.noise == pytest.approx(0.01)
    assert control.prompts["verdict"].tolist() == ["unexplained"]


def test_a_text_that_repeats_itself_is_not_impossible():
    values = [-0.001] * AT
    theirs = own(lambda _: values)
    ours = other(own(lambda _: [-0.0] * AT), 0.02)
    for output in (*theirs, *ours):
        output["top_logprobs"][:AT] = [[[3, x]] for x in output["logprobs"][:AT]]
    found = sv.audit(theirs, ours, dtype="bfloat16")
    assert found.noise == pytest.approx(0.001)
    assert not any("cannot be right" in note for note in found.notes)
