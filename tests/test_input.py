"""Arguments that are refused before any model runs, and those that are accepted."""

import inspect
import json
from dataclasses import fields

import numpy as np
import pytest
import torch
from conftest import EOS, VOCABULARY, check_refusal, generate, make_pair
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaModel, PreTrainedTokenizerFast

import specviz as sv
from specviz.engine.options import Options
from specviz.engine.trial import check_exact
from specviz.generation.generate import RareOptions

NEW_TOKENS = 8


@pytest.fixture
def speaking() -> sv.Pair:
    """A pair whose tokenizer knows the words w0 ... w9."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(10)}))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain = make_pair("llama")
    return sv.Pair(plain.target, plain.draft, PreTrainedTokenizerFast(tokenizer_object=words))


@pytest.fixture
def no_forward(monkeypatch: pytest.MonkeyPatch):
    """Every forward of the tiny Llamas fails; the reason says so."""
    for role in ("target", "draft"):  # which a run would try first
        check_exact(role, getattr(make_pair("llama"), role))

    def fail(*_: object, **__: object):
        raise AssertionError("a forward has run")

    monkeypatch.setattr(LlamaModel, "forward", fail)


@pytest.mark.usefixtures("no_forward")
def test_a_good_call_does_run_a_forward(pair):
    """The control for all that follows."""
    with pytest.raises(AssertionError, match="a forward has run"):
        generate(pair, [[1, 2]])


BAD_PROMPTS = [
    ([], "prompts=[] is empty"),
    ("w1 w2", "prompts must be a list, got 'w1 w2'"),
    ({"w1"}, "prompts must be a list, got {'w1'}"),
    (torch.tensor([[1, 2]]), "prompts must be a list, got tensor([[1, 2]])"),
    ([""], "prompts[0]='' is empty"),
    (["w1", "  "], "prompts[1] must have at least one token, got '  '"),
    (["w1\ud800"], r"prompts[0] must be valid Unicode, got 'w1\ud800' with a lone surrogate"),
    ([[1], []], "prompts[1]=[] is empty"),
    ([7], "prompts[0] must be text or a list of token ids, got 7"),
    ([b"w1"], "prompts[0] must be text or a list of token ids, got b'w1'"),
    ([[1, 2.0]], "prompts[0][1] must be a token id, got 2.0"),
    ([[True]], "prompts[0][0] must be a token id, got True"),
    ([["w1"]], "prompts[0][0] must be a token id, got 'w1'"),
    ([[1], [3, VOCABULARY]], "prompts[1][1] must be a token id from 0 to 96, got 97"),
    (
        [[10**30]],
        "prompts[0][0] must be a token id from 0 to 96, got 1000000000000000000000000000000",
    ),
]
COUNTS = ("num_draft_tokens", "batch_size", "max_new_tokens")
BAD_OPTIONS = [
    *(({name: 0}, f"{name} must be an int >= 1, got 0; ") for name in COUNTS),
    *(({name: 1.5}, f"{name} must be an int >= 1, got 1.5; ") for name in COUNTS),
    ({"max_new_tokens": []}, "max_new_tokens has 0 entries for 2 prompts"),
    ({"max_new_tokens": [4, 4, 4]}, "max_new_tokens has 3 entries for 2 prompts"),
    ({"max_new_tokens": [4, 0]}, "max_new_tokens[1] must be an int >= 1, got 0"),
    ({"max_new_tokens": (4, "4")}, "max_new_tokens[1] must be an int >= 1, got '4'"),
    ({"num_draft_tokens": "3"}, "num_draft_tokens must be an int >= 1 or 'auto', got '3'"),
    ({"seed": -1}, "seed must be an int >= 0, got -1"),
    (
        {"strategy": "eqspek"},
        "strategy='eqspek' is unknown; choose one of autoregressive, eqspec, exspec, inplace",
    ),
    (
        {"strategy": sv.drafter("model")},
        "strategy must be a name or a Strategy, got ModelDrafter()",
    ),
    (
        {"drafter": "lookahead"},
        "drafter='lookahead' is unknown; choose one of clover, dflash, eagle3, lookup, medusa, "
        "model, mtp, static_tree, synthetic, tree",
    ),
    ({"drafter": 5}, "drafter must be a name or a Drafter, got 5"),
    ({"sampling": 0.7}, "sampling must be a SamplingParams or None, got 0.7"),
]


@pytest.mark.usefixtures("no_forward")
@pytest.mark.parametrize(("prompts", "begins"), BAD_PROMPTS)
def test_prompts_that_cannot_be_decoded(prompts, begins, speaking):
    for run in (sv.generate, sv.decode):
        check_refusal(lambda run=run: run(speaking, prompts), begins)


@pytest.mark.usefixtures("no_forward")
@pytest.mark.parametrize(("arguments", "begins"), BAD_OPTIONS)
def test_options_that_cannot_be_used(arguments, begins, pair):
    for run in (sv.generate, sv.decode):
        check_refusal(lambda run=run: run(pair, [[1, 2], [3]], **arguments), begins)


@pytest.mark.usefixtures("no_forward")
@pytest.mark.parametrize("run", [sv.generate, sv.decode])
def test_what_is_no_pair_and_what_cannot_read(run, pair):
    for wrong in (None, "pair", pair.target, (pair.target, pair.draft)):
        check_refusal(
            lambda wrong=wrong: run(wrong, [[1]]),
            f"pair must be a Pair, got {type(wrong).__name__}",
        )
    check_refusal(
        lambda: run(pair, [[1], "w1"]), "prompts[1] is text, but the pair has no tokenizer"
    )


def test_an_unknown_option_is_named_with_the_known_ones(pair):
    known = ", ".join(field.name for field in fields(Options))
    begins = f"option 'batchsize' is unknown; choose from {known}"
    check_refusal(lambda: sv.decode(pair, [[1]], batchsize=3), begins, error=TypeError)


@pytest.mark.parametrize("run", [sv.generate, sv.decode])
def test_other_names_of_an_option_lead_to_it(run, pair):
    for name, meant in (("K", "num_draft_tokens"), ("B", "batch_size"), ("top_p", "sampling=")):
        begins = f"option '{name}' is unknown; pass {meant}"
        check_refusal(lambda name=name: run(pair, [[1]], **{name: 4}), begins, error=TypeError)


def test_numbers_of_numpy_are_recorded_as_pythons(pair):
    """Each option that takes a number; a record that is saved holds JSON."""
    strategy = sv.strategy("exspec", window=np.int64(8), max_wait=np.int64(3), fallback="wait")
    faulty = sv.strategy("eqspec", break_invariant="kv", from_round=np.int64(1))
    selector = sv.selector("tetris", extra=np.int64(2))
    numbers = dict.fromkeys((*COUNTS, "seed", "num_threads"), 2)
    options = {name: np.int64(value) for name, value in numbers.items()}
    for how in ({"strategy": strategy}, {"strategy": faulty}, {"selector": selector}):
        meta = sv.generate(pair, [[1], [2, 3]], record=True, **options, **how).trace.meta
        assert json.loads(json.dumps(meta)) == meta


def test_generate_has_the_defaults_of_the_options():
    """Its signature and docstrings repeat them, so that a reader sees them."""
    given = inspect.signature(sv.generate).parameters
    assert len(given) <= 12
    for field in fields(Options):
        if field.name in given:
            assert given[field.name].default == field.default, field.name
        else:
            told = f"{field.name}={field.default!r}".replace("'", '"')
            assert told in RareOptions.__doc__


# More wrong values of each stand in test_bad_values.
MAKERS = [
    (lambda: sv.SamplingParams(1e-6), "temperature must be a number from 1e-05 to 100000.0, got"),
    (lambda: sv.SamplingParams(1e6), "temperature must be a number from 1e-05 to 100000.0, got"),
    (lambda: sv.SamplingParams(1.0, top_k=0), "top_k must be an int >= 1, got 0"),
    (lambda: sv.SamplingParams(1.0, top_p=1.01), "top_p must be a number above 0 and at most 1,"),
    (lambda: sv.SamplingParams(1.0, coupling="Gumbel"), "coupling='Gumbel' is unknown; choose"),
    (lambda: sv.load_pair(device="cuda:99"), "device='cuda:99' is "),
    (lambda: sv.load_pair(device="meta"), "device='meta' is "),
    (lambda: sv.load_pair(dtype="int8"), "dtype='int8' is unknown"),
    (lambda: sv.load_prompts(limit=0), "limit must be an int >= 1, got 0"),
    (lambda: sv.strategy(["eqspec"]), "strategy=['eqspec'] is unknown"),
    (lambda: sv.strategy("inplace", valid=False), "strategy 'inplace' takes no option 'valid'"),
    (lambda: sv.load_pair("a"), "target='a' is not a local folder"),
    (lambda: sv.load_pair(draft="a"), "target=None with draft='a'; give a target too"),
    (lambda: sv.load_pair("", ""), "target must be a hub id or a folder, got ''"),
    (lambda: sv.load_prompts("spec-bench"), "source='spec-bench' is unknown"),
    (
        lambda: sv.load_prompts(path="questions.jsonl"),
        "path and categories belong to source='spec_bench'",
    ),
    (
        lambda: sv.load_prompts("spec_bench", __file__, categories="math"),
        "categories must be a list of strings, got 'math'",
    ),
]


@pytest.mark.parametrize(("call", "begins"), MAKERS, ids=[begins for _, begins in MAKERS])
def test_what_cannot_be_made_or_loaded(call, begins):
    check_refusal(call, begins)


def test_models_that_are_not_there(tmp_path):
    """An empty folder, a missing one, and a path that needs no network to be seen as wrong."""
    for name in (tmp_path, str(tmp_path), str(tmp_path / "missing"), "./missing", "~/missing"):
        check_refusal(
            lambda name=name: sv.load_pair(name, name),
            f"target={str(name)!r} is not a folder that holds a model",
            error=FileNotFoundError,
        )


QUESTION = {"question_id": 1, "category": "writing", "turns": ["Say\u2028it\x0b.", "Again."]}


def test_questions_are_read_by_category(tmp_path):
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
def test_a_prompt_may_fill_the_models_positions_and_no_more(strategy):
    """GPT-2 has a table of 256 positions: one beyond it would be an index error."""
    pair = make_pair("gpt2")
    K = 0 if strategy == "autoregressive" else 5
    prompts, room = [[3, 1, 4, 1, 5, 9, 2, 6] * 25, [7, 8]], 256 - 200 - K - 1
    run = {"strategy": strategy, "num_draft_tokens": 5}
    result = generate(pair, prompts, max_new_tokens=[room, 3], **run)
    assert len(result.tokens[0]) == room or result.tokens[0][-1] in EOS
    begins = (
        f"prompts[0] has 200 tokens; with max_new_tokens={room + 1} and num_draft_tokens={K} "
        "it needs 257 positions and the models have 256"
    )
    check_refusal(lambda: sv.generate(pair, prompts, max_new_tokens=[room + 1, 3], **run), begins)


def decode_alone(pair: sv.Pair, prompt: list[int]) -> list[int]:
    return generate(pair, [prompt], max_new_tokens=NEW_TOKENS).tokens[0]


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
def test_ids_may_come_in_any_sequence(as_prompt, pair, prompts):
    expected = generate(pair, prompts[:4], max_new_tokens=[5, 6, 7, 8])
    given = tuple(as_prompt(prompt) for prompt in prompts[:4])
    result = generate(pair, given, max_new_tokens=as_prompt([5, 6, 7, 8]))
    assert result.tokens == expected.tokens
    assert {type(token) for row in result.tokens for token in row} == {int}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("strategy", ["autoregressive", "eqspec", "inplace"])
def test_the_callers_order_is_kept_whatever_the_batch(strategy, pair, prompts):
    """Duplicates and one-token prompts among them; rows finish in another order than they came."""
    alone = {tuple(prompt): decode_alone(pair, prompt) for prompt in prompts}
    mixed = [*reversed(prompts), prompts[0], prompts[0]]
    for batch_size in (2, len(mixed), 1000):
        run = {"strategy": strategy, "batch_size": batch_size, "max_new_tokens": NEW_TOKENS}
        result = generate(pair, mixed, **run)
        assert result.tokens == [alone[tuple(prompt)] for prompt in mixed]


def test_texts_are_the_tokens_decoded(speaking, pair):
    said = generate(speaking, ["w3 w1 w4", [3, 1, 4]], max_new_tokens=NEW_TOKENS)
    assert said.tokens[0] == said.tokens[1]
    assert said.texts == [speaking.tokenizer.decode(row) for row in said.tokens]
    assert generate(pair, [[3, 1, 4]], max_new_tokens=NEW_TOKENS).texts == [""]
