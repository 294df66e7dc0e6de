"""Arguments that are refused before any model runs, and those that are accepted."""

import inspect
import json
import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import EOS, VOCABULARY, make_pair
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaModel, PreTrainedTokenizerFast

import specviz as sv
from specviz.engine.options import Options

NEW_TOKENS = 8


@pytest.fixture
def speaking() -> sv.Pair:
    """A pair whose tokenizer knows the words w0 ... w9."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(10)}))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain = make_pair("llama")
    return sv.Pair(plain.target, plain.draft, PreTrainedTokenizerFast(tokenizer_object=words))


@pytest.fixture
def no_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every forward of the tiny Llamas fails; the reason says so."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a forward has run")

    monkeypatch.setattr(LlamaModel, "forward", fail)


def check_refusal(
    call: Callable[[], object], begins: str, error: type[Exception] = ValueError
) -> None:
    """`call` fails with one line: what is wrong, a semicolon, and the remedy."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error
    assert message.startswith(begins), message
    assert "\n" not in message
    assert len(message) < 300
    assert message.partition("; ")[2]


@pytest.mark.usefixtures("no_forward")
def test_a_good_call_does_run_a_forward(pair: sv.Pair) -> None:
    """The control for all that follows."""
    with pytest.raises(AssertionError, match="a forward has run"):
        sv.generate(pair, [[1, 2]], progress=False)


BAD_PROMPTS = [
    ([], "prompts=[] is empty"),
    ((), "prompts=[] is empty"),
    ("w1 w2", "prompts must be a list, got 'w1 w2'"),
    (b"w1 w2", "prompts must be a list, got b'w1 w2'"),
    (None, "prompts must be a list, got None"),
    (7, "prompts must be a list, got 7"),
    ({"w1"}, "prompts must be a list, got {'w1'}"),
    (np.array([[1, 2], [3, 4]]), "prompts must be a list, got array([[1, 2], [3, 4]])"),
    ([""], "prompts[0]='' is empty"),
    (["w1", "  "], "prompts[1] must have at least one token, got '  '"),
    (["w1\ud800"], r"prompts[0] must be valid Unicode, got 'w1\ud800' with a lone surrogate"),
    ([[1], []], "prompts[1]=[] is empty"),
    ([np.array([], dtype=int)], "prompts[0]=[] is empty"),
    ([7], "prompts[0] must be text or a list of token ids, got 7"),
    ([None], "prompts[0] must be text or a list of token ids, got None"),
    ([b"w1"], "prompts[0] must be text or a list of token ids, got b'w1'"),
    ([bytearray(b"w1")], "prompts[0] must be text or a list of token ids, got bytearray(b'w1')"),
    ([{1: 2}], "prompts[0] must be text or a list of token ids, got {1: 2}"),
    (
        [np.array([[1, 2], [3, 4]])],
        "prompts[0] must be text or a list of token ids, got array([[1, 2], [3, 4]])",
    ),
    ([[1, 2.0]], "prompts[0][1] must be a token id, got 2.0"),
    ([np.array([1.0])], "prompts[0][0] must be a token id, got 1.0"),
    ([[True]], "prompts[0][0] must be a token id, got True"),
    ([np.array([True])], "prompts[0][0] must be a token id, got True"),
    ([["w1"]], "prompts[0][0] must be a token id, got 'w1'"),
    ([["w1" * 99]], "prompts[0][0] must be a token id, got 'w1w1"),
    ([[1], [-1]], "prompts[1][0] must be a token id from 0 to 96, got -1"),
    ([[1], [3, VOCABULARY]], "prompts[1][1] must be a token id from 0 to 96, got 97"),
    ([[1], [3, np.int64(VOCABULARY)]], "prompts[1][1] must be a token id from 0 to 96, got 97"),
    (
        [[10**30]],
        "prompts[0][0] must be a token id from 0 to 96, got 1000000000000000000000000000000",
    ),
]
COUNTS = ("num_draft_tokens", "batch_size", "max_new_tokens")
BAD_COUNTS = [
    ({name: value}, f"{name} must be an int >= 1, got {value!r}; ")
    for name in COUNTS
    for value in (0, -1, 1.5, "3", True, None, float("nan"))
    if (name, value) != ("num_draft_tokens", "3")  # a str names a draft length
]
BAD_OPTIONS = [
    *BAD_COUNTS,
    ({"max_new_tokens": []}, "max_new_tokens has 0 entries for 2 prompts"),
    ({"max_new_tokens": [4]}, "max_new_tokens has 1 entries for 2 prompts"),
    ({"max_new_tokens": [4, 4, 4]}, "max_new_tokens has 3 entries for 2 prompts"),
    ({"max_new_tokens": [4, 0]}, "max_new_tokens[1] must be an int >= 1, got 0"),
    ({"max_new_tokens": (4, "4")}, "max_new_tokens[1] must be an int >= 1, got '4'"),
    ({"max_new_tokens": {4: 4}}, "max_new_tokens must be an int >= 1, got {4: 4}"),
    ({"num_draft_tokens": "3"}, "num_draft_tokens must be an int >= 1 or 'auto', got '3'"),
    ({"num_draft_tokens": [5]}, "num_draft_tokens must be an int >= 1, got [5]"),
    ({"seed": -1}, "seed must be an int >= 0, got -1"),
    ({"seed": None}, "seed must be an int >= 0, got None"),
    (
        {"strategy": "eqspek"},
        "strategy='eqspek' is unknown; choose one of autoregressive, eqspec, exspec, inplace",
    ),
    ({"strategy": None}, "strategy must be a name or a Strategy, got None"),
    (
        {"strategy": np.zeros((2, 2))},
        "strategy must be a name or a Strategy, got array([[0., 0.], [0., 0.]])",
    ),
    (
        {"strategy": sv.drafter("model")},
        "strategy must be a name or a Strategy, got ModelDrafter(keep_cache=True)",
    ),
    (
        {"drafter": "lookahead"},
        "drafter='lookahead' is unknown; choose one of lookup, model, synthetic",
    ),
    ({"drafter": 5}, "drafter must be a name or a Drafter, got 5"),
    (
        {"drafter": sv.strategy("eqspec")},
        "drafter must be a name or a Drafter, got EqSpecWithHabits(refill=True, ",
    ),
    ({"sampling": 0.7}, "sampling must be a SamplingParams or None, got 0.7"),
    ({"sampling": {}}, "sampling must be a SamplingParams or None, got {}"),
    (
        {"sampling": sv.SamplingParams},
        "sampling must be a SamplingParams or None, got <class 'specviz.engine.sampling.Sampling",
    ),
]
RUNS = [sv.generate, sv.decode]


@pytest.mark.usefixtures("no_forward")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("prompts", "begins"), BAD_PROMPTS)
def test_prompts_that_cannot_be_decoded(
    run: Callable[..., object], prompts: Any, begins: str, speaking: sv.Pair
) -> None:
    check_refusal(lambda: run(speaking, prompts), begins)


@pytest.mark.usefixtures("no_forward")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("arguments", "begins"), BAD_OPTIONS)
def test_options_that_cannot_be_used(
    run: Callable[..., object], arguments: dict[str, Any], begins: str, pair: sv.Pair
) -> None:
    check_refusal(lambda: run(pair, [[1, 2], [3]], **arguments), begins)


@pytest.mark.usefixtures("no_forward")
@pytest.mark.parametrize("run", RUNS)
def test_what_is_no_pair_and_what_cannot_read(run: Callable[..., object], pair: sv.Pair) -> None:
    for wrong in (None, "pair", pair.target, (pair.target, pair.draft)):
        check_refusal(
            lambda wrong=wrong: run(wrong, [[1]]),
            f"pair must be a Pair, got {type(wrong).__name__}",
        )
    check_refusal(
        lambda: run(pair, [[1], "w1"]), "prompts[1] is text, but the pair has no tokenizer"
    )


def test_an_unknown_option_is_named_with_the_known_ones(pair: sv.Pair) -> None:
    known = ", ".join(field.name for field in fields(Options))
    begins = f"option 'batchsize' is unknown; choose from {known}"
    check_refusal(lambda: sv.decode(pair, [[1]], batchsize=3), begins, TypeError)


def test_generate_has_the_defaults_of_the_options() -> None:
    """Its signature repeats them, so that a reader sees them; they must not differ."""
    given = inspect.signature(sv.generate).parameters
    for field in fields(Options):
        assert given[field.name].default == field.default, field.name


BAD_SAMPLING: list[tuple[dict[str, Any], str]] = [
    *(
        (
            {"temperature": value},
            f"temperature must be a number from 1e-05 to 100000.0, got {value!r}",
        )
        for value in (0, -1, 1e-6, 1e6, math.inf, math.nan, "1", None, True)
    ),
    *(
        ({"top_k": value}, f"top_k must be an int >= 1, got {value!r}")
        for value in (0, -1, 1.5, "3", True)
    ),
    *(
        ({"top_p": value}, f"top_p must be a number above 0 and at most 1, got {value!r}")
        for value in (0, 0.0, -0.1, 1.01, math.nan, "0.9", True)
    ),
    *(
        ({"coupling": value}, f"coupling={value!r} is unknown; choose one of rejection, gumbel")
        for value in ("Gumbel", "", None)
    ),
]
MAKERS = [
    *(
        (lambda options=options: sv.SamplingParams(**{"temperature": 1.0} | options), begins)
        for options, begins in BAD_SAMPLING
    ),
    (
        lambda: sv.strategy("eqspek"),
        "strategy='eqspek' is unknown; choose one of autoregressive, eqspec, exspec, inplace",
    ),
    (lambda: sv.strategy(["eqspec"]), "strategy=['eqspec'] is unknown"),
    (
        lambda: sv.strategy("eqspec", window=3),
        "strategy 'eqspec' takes no option 'window'; its options are as_published, bonus",
    ),
    (lambda: sv.strategy("inplace", valid=False), "strategy 'inplace' takes no option 'valid'"),
    (lambda: sv.strategy("inplace", refill="no"), "refill must be a bool, got 'no'"),
    (lambda: sv.strategy("inplace", refill=None), "refill must be a bool, got None"),
    (
        lambda: sv.drafter("lookahead"),
        "drafter='lookahead' is unknown; choose one of lookup, model, synthetic",
    ),
    (
        lambda: sv.drafter("model", n=3),
        "drafter 'model' takes no option 'n'; its options are keep_cache",
    ),
    (lambda: sv.load_pair("a"), "draft=None with 'a' for the other"),
    (lambda: sv.load_pair(draft="a"), "target=None with 'a' for the other"),
    (lambda: sv.load_pair("", ""), "target must be a hub id or a folder, got ''"),
    (lambda: sv.load_pair(1, 2), "target must be a hub id or a folder, got 1"),
    *(
        (lambda device=device: sv.load_pair(device=device), f"device={device!r} is ")
        for device in ("tpu", "", 3, "cuda:99", "meta")
    ),
    *(
        (lambda dtype=dtype: sv.load_pair(dtype=dtype), f"dtype={dtype!r} is unknown")
        for dtype in ("int8", "auto", "", 32, [])
    ),
    (lambda: sv.load_prompts("spec-bench"), "source='spec-bench' is unknown"),
    *(
        (
            lambda limit=limit: sv.load_prompts(limit=limit),
            f"limit must be an int >= 1, got {limit!r}",
        )
        for limit in (0, -1, 1.5, "3", True)
    ),
    (
        lambda: sv.load_prompts(path="questions.jsonl"),
        "path and categories belong to source='spec_bench'",
    ),
    (
        lambda: sv.load_prompts(categories=["math"]),
        "path and categories belong to source='spec_bench'",
    ),
    (lambda: sv.load_prompts("spec_bench"), "path=None for source='spec_bench'"),
    (lambda: sv.load_prompts("spec_bench", 3), "path=3 for source='spec_bench'"),
    (
        lambda: sv.load_prompts("spec_bench", __file__, categories="math"),
        "categories must be a list of strings, got 'math'",
    ),
]


@pytest.mark.parametrize(("call", "begins"), MAKERS, ids=[begins for _, begins in MAKERS])
def test_what_cannot_be_made_or_loaded(call: Callable[[], object], begins: str) -> None:
    check_refusal(call, begins)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """An empty folder, a missing one, and a path that needs no network to be seen as wrong."""
    for name in (tmp_path, str(tmp_path), str(tmp_path / "missing"), "./missing", "~/missing"):
        check_refusal(
            lambda name=name: sv.load_pair(name, name),
            f"target={str(name)!r} is not a folder that holds a model",
            FileNotFoundError,
        )
    for path in (tmp_path, tmp_path / "missing.jsonl"):
        check_refusal(
            lambda path=path: sv.load_prompts("spec_bench", path),
            f"path={str(path)!r} is not a file",
            FileNotFoundError,
        )


QUESTION = {"question_id": 1, "category": "writing", "turns": ["Say\u2028it\x0b.", "Again."]}


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'"text"',
        b'{"category": "a"}',
        b'{"category": "a", "turns": []}',
        b'{"category": 1, "turns": ["x"]}',
        b'{"category": "a", "turns": [3]}',
        b'{"category": "a", "turns": "text"}',
        b'{"category": "a", "turns": ["\xff"]}',
    ],
)
def test_a_line_that_is_no_question_is_named(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(json.dumps(QUESTION).encode() + b"\n\n" + line + b"\n")
    check_refusal(
        lambda: sv.load_prompts("spec_bench", path), f"line 3 of {path} is not a SpecBench question"
    )


def test_questions_are_read_by_category(tmp_path: Path) -> None:
    """A line ends at a newline alone, not at the other signs that Python's text lines end at."""
    others = [QUESTION | {"category": name, "turns": [name]} for name in ("math", "qa", "math")]
    path = tmp_path / "questions.jsonl"
    path.write_text(
        "\n".join(json.dumps(item, ensure_ascii=False) for item in [QUESTION, *others]),
        encoding="utf-8",
    )
    assert sv.load_prompts("spec_bench", path) == [QUESTION["turns"][0], "math", "qa", "math"]
    assert sv.load_prompts("spec_bench", str(path), categories=["math"]) == ["math", "math"]
    assert sv.load_prompts("spec_bench", path, categories={"qa", "math"}, limit=2) == ["math", "qa"]
    check_refusal(
        lambda: sv.load_prompts("spec_bench", path, categories=["maths"]),
        "categories names 'maths'",
    )


@pytest.mark.parametrize("strategy", ["autoregressive", "eqspec", "inplace"])
def test_a_prompt_may_fill_the_models_positions_and_no_more(strategy: str) -> None:
    """GPT-2 has a table of 256 positions: one beyond it would be an index error."""
    pair = make_pair("gpt2")
    K = 0 if strategy == "autoregressive" else 5
    prompts, room = [[3, 1, 4, 1, 5, 9, 2, 6] * 25, [7, 8]], 256 - 200 - K - 1
    run = {"strategy": strategy, "num_draft_tokens": 5, "progress": False}
    result = sv.generate(pair, prompts, max_new_tokens=[room, 3], **run)
    assert len(result.tokens[0]) == room or result.tokens[0][-1] in EOS
    begins = (
        f"prompts[0] has 200 tokens; with max_new_tokens={room + 1} and num_draft_tokens={K} "
        "it needs 257 positions and the models have 256"
    )
    check_refusal(lambda: sv.generate(pair, prompts, max_new_tokens=[room + 1, 3], **run), begins)


def decode_alone(pair: sv.Pair, prompt: list[int]) -> list[int]:
    return sv.generate(pair, [prompt], max_new_tokens=NEW_TOKENS, progress=False).tokens[0]


@pytest.mark.parametrize(
    "as_prompt",
    [
        tuple,
        np.array,
        torch.tensor,
        lambda ids: [np.int64(token) for token in ids],
        lambda ids: np.array(ids, dtype=np.uint8),
    ],
    ids=["tuple", "array", "tensor", "numpy ids", "uint8 array"],
)
def test_ids_may_come_in_any_sequence(
    as_prompt: Callable[[list[int]], Any], pair: sv.Pair, prompts: list[list[int]]
) -> None:
    expected = sv.generate(pair, prompts[:4], max_new_tokens=[5, 6, 7, 8], progress=False)
    budgets = as_prompt([5, 6, 7, 8])
    result = sv.generate(
        pair,
        tuple(as_prompt(prompt) for prompt in prompts[:4]),
        max_new_tokens=budgets,
        progress=False,
    )
    assert result.tokens == expected.tokens
    assert {type(token) for row in result.tokens for token in row} == {int}


def test_numbers_may_be_numpys_own(pair: sv.Pair, prompts: list[list[int]]) -> None:
    plain, numpys = ({name: kind(3) for name in (*COUNTS, "seed")} for kind in (int, np.int64))
    assert (
        sv.generate(pair, prompts, **numpys, progress=False).tokens
        == sv.generate(pair, prompts, **plain, progress=False).tokens
    )


@pytest.mark.parametrize("strategy", ["autoregressive", "eqspec", "inplace"])
def test_the_callers_order_is_kept_whatever_the_batch(
    strategy: str, pair: sv.Pair, prompts: list[list[int]]
) -> None:
    """Duplicates and one-token prompts among them; rows finish in another order than they came."""
    alone = {tuple(prompt): decode_alone(pair, prompt) for prompt in prompts}
    mixed = [*reversed(prompts), prompts[0], prompts[0]]
    for batch_size in (2, len(mixed), 1000):
        result = sv.generate(
            pair,
            mixed,
            strategy=strategy,
            batch_size=batch_size,
            max_new_tokens=NEW_TOKENS,
            progress=False,
        )
        assert result.tokens == [alone[tuple(prompt)] for prompt in mixed]


def test_nothing_follows_eos_and_no_budget_is_exceeded(
    pair: sv.Pair, prompts: list[list[int]]
) -> None:
    result = sv.generate(pair, prompts, max_new_tokens=24, progress=False)
    ends = [[i for i, token in enumerate(row, 1) if token in EOS] for row in result.tokens]
    assert all(end in ([], [len(row)]) for end, row in zip(ends, result.tokens, strict=True))
    assert {len(row) for row, end in zip(result.tokens, ends, strict=True) if not end} == {24}
    assert any(ends)


def test_texts_are_the_tokens_decoded(speaking: sv.Pair, pair: sv.Pair) -> None:
    said = sv.generate(speaking, ["w3 w1 w4", [3, 1, 4]], max_new_tokens=NEW_TOKENS, progress=False)
    assert said.tokens[0] == said.tokens[1]
    assert said.texts == [speaking.tokenizer.decode(row) for row in said.tokens]
    assert sv.generate(pair, [[3, 1, 4]], max_new_tokens=NEW_TOKENS, progress=False).texts == [""]
