"""`audit`: where texts end, what was fed before them, and references of another kind."""

import copy
from typing import Any

import pytest
import torch
from conftest import decoded, generate_one_by_one, make_pair, make_prompts
from test_audit import a_tie
from tokenizers.processors import TemplateProcessing

import specviz as sv
from specviz.checks.audit.audit import PROCESSED
from specviz.checks.audit.duo import (
    BEFORE_BUDGET,
    BEHIND_BUDGET,
    BEHIND_EOS,
    EMPTY,
    NO_TEMPLATE,
    REASONING,
    Endings,
    pair_up,
)
from specviz.checks.audit.output import from_record
from specviz.checks.audit.reading import OutputSet
from specviz.checks.equivalence import OPEN_END

END, OTHER_END, PAD = 9, 5, 0  # two EOS of the target, and what fills up rows
LONG, ENDED = generate_one_by_one()[0], generate_one_by_one()[1]  # 24 tokens; 3, the last is EOS
BARE = ENDED[:-1]
PROMPTS = {24: make_prompts()[0], 3: make_prompts()[1]}


def said(token_ids: list[int], reason: str = "", budget: int | None = None) -> dict[str, Any]:
    """An output after the prompt whose text `token_ids` is a part of."""
    prompt = PROMPTS[24 if token_ids[:1] == LONG[:1] or not token_ids else 3]
    record = {"prompt": prompt, "token_ids": token_ids, "finish_reason": reason or None}
    return record | {"max_tokens": budget}


@pytest.mark.parametrize(
    ("theirs", "ours", "verdict", "reason"),
    [
        # Behind an EOS that the target names.
        (said(ENDED, "stop"), said([*ENDED, 12, 13], "length"), "unexplained", BEHIND_EOS),
        (said(ENDED), said([*ENDED, END, 13]), "unexplained", BEHIND_EOS),
        (said(BARE, "stop"), said([*ENDED, 13]), "unexplained", BEHIND_EOS),
        (said(LONG, "length"), said([*LONG[:5], OTHER_END, 1]), "unexplained", BEHIND_EOS),
        # A row's padding is no text.
        (said(ENDED, "stop"), said([*ENDED, PAD, PAD]), "equal", ""),
        (said([*ENDED, END, PAD]), said(ENDED), "equal", ""),
        (said(BARE, "stop"), said([*ENDED, PAD]), "equal", ""),
        # A reference that was told to ignore EOS.
        (said([*ENDED, 12, 13]), said(ENDED, "stop"), "shorter", ""),
        (said([*ENDED, 12, 13]), said(BARE, "stop"), "shorter", ""),
        (said([*ENDED, 12]), said([*ENDED, 12, 13], "", 5), "unknown", OPEN_END),
        (said([*ENDED, 12], "length", 4), said([*ENDED, 12, 13], "", 5), "longer", ""),
        # An EOS that one side leaves out.
        (said(ENDED), said(BARE, "stop"), "equal", ""),
        (said(BARE, "stop"), said(ENDED), "equal", ""),
        (said(ENDED), said(BARE), "equal", ""),
        (said(ENDED), said(BARE, "length", 2), "shorter", ""),
        (said(ENDED), said(BARE, "length"), "unknown", OPEN_END),
        # An end that the target does not write.
        (said(LONG, "length"), said(LONG[:5], "stop"), "unexplained", ""),
        (said(LONG, "length", 24), said(LONG[:5]), "unexplained", ""),
        (said(LONG, "length"), said([], "stop"), "unexplained", ""),
        (
            said(LONG[:5], "stop"),
            said(LONG, "length"),
            "unknown",
            "the reference ends where this target",
        ),
        (said(LONG, "length"), said(LONG[:5], "length", 24), "unexplained", BEFORE_BUDGET),
        (said(LONG, "length"), said(LONG[:5], "content_filter", 24), "unknown", OPEN_END),
        # Budgets, stated or not.
        (said(LONG, "length"), said(LONG[:5], "length", 5), "shorter", ""),
        (said(LONG[:5], "length", 5), said(LONG, "length", 24), "longer", ""),
        (said(LONG, "length"), said(LONG[:5], "length"), "unknown", OPEN_END),
        (said(LONG), said(LONG[:5]), "unknown", OPEN_END),
        (said(LONG[:5], "length", 5), said(LONG), "unknown", OPEN_END),
        (said(LONG[:5], "length", 5), said(LONG[:7], "length", 5), "unexplained", BEHIND_BUDGET),
        (said(LONG[:7], "", 5), said(LONG[:7], "length", 5), "equal", ""),
        # Nothing on both sides.
        (said([], "stop"), said([], "stop"), "unknown", EMPTY),
    ],
)
def test_an_end_is_judged(
    theirs: dict[str, Any], ours: dict[str, Any], verdict: str, reason: str
) -> None:
    found = sv.audit([theirs], [ours], make_pair("llama"))
    entry = found.prompts.loc[0]
    assert (entry["verdict"], entry["reason"][: len(reason)]) == (verdict, reason), found
    assert found.passed == (verdict in ("equal", "shorter", "longer"))
    assert found.verdict.startswith("right") == (verdict == "equal")
    ended = "no divergence, but no text is equal to its end: of 1 text, 1 end"
    assert found.verdict.startswith(ended) == (verdict in ("shorter", "longer"))
    if entry["reason"]:
        assert entry["reason"] in found.verdict


def test_without_a_target_ends_are_open() -> None:
    for theirs, ours in ((ENDED, [*ENDED, 12]), (LONG, LONG[:5])):
        found = sv.audit([said(theirs)], [said(ours, "stop")])
        assert found.verdict.startswith(f"not judged: {OPEN_END}")
        assert not found.passed
    # A run of specviz names the EOS of its target and its budgets.
    run = decoded("autoregressive", batch_size=1)
    texts = [{"token_ids": [*tokens, 1]} for tokens in run.tokens]
    found = sv.audit(run, texts)
    ended = [tokens[-1] in (5, 9, 17, 40) for tokens in run.tokens]
    assert (found.prompts["reason"] == BEHIND_EOS).tolist() == ended
    assert found.verdict.startswith(
        f"wrong: {BEHIND_EOS} in {sum(ended)} of 10 texts, the first in"
    )


@pytest.mark.parametrize(
    ("ours", "verdicts"),
    [
        # Whether another token may stand where the tokenizer splits, the target cannot always tell.
        ({"text": "a =", "finish_reason": "stop"}, {"unexplained", "unknown"}),
        ({"text": "a ="}, {"unknown"}),
        ({"text": "a =", "finish_reason": "length", "max_tokens": 3}, {"shorter"}),
        ({"text": "a =", "finish_reason": "length", "max_tokens": 9}, {"unknown"}),
        ({"text": "a = 1<eos>"}, {"equal"}),
        ({"text": ""}, {"unknown"}),
    ],
)
def test_the_end_of_a_text(embedded: sv.Pair, ours: dict[str, Any], verdicts: set[str]) -> None:
    theirs = {"prompt": "x = 1\n", "text": "a = 1", "max_tokens": 9}
    end = embedded.tokenizer.decode([embedded.eos_token_ids[0]])
    ours = {**ours, "text": ours["text"].replace("<eos>", end), "prompt": "x = 1\n"}
    found = sv.audit([theirs], [ours], embedded)
    assert found.prompts.loc[0, "verdict"] in verdicts
    assert found.passed == bool(verdicts & {"equal", "shorter"})


CHAT = [{"role": "user", "content": "x = 1"}]
TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}y ="


def chat_of(pair: sv.Pair) -> dict[str, Any]:
    """What the target writes after the chat, as a server answers."""
    tokenizer = pair.tokenizer
    prompt = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    run = sv.generate(pair, [prompt], max_new_tokens=12, progress=False)
    return {"messages": CHAT, "token_ids": run.tokens[0], "prompt_token_ids": prompt}


def test_a_chat_is_scored_behind_its_template(
    embedded: sv.Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded.tokenizer, "chat_template", TEMPLATE)
    named = chat_of(embedded)
    theirs = {**named, "prompt_token_ids": None}
    tokens = theirs["token_ids"]
    ours = {**theirs, "token_ids": [*tokens[:4], tokens[4] + 1, *tokens[5:]]}
    templated = sv.audit([theirs], [ours], embedded)
    assert templated.prompts.loc[0, "verdict"] == "unexplained"
    # The ids that the server names go before the template.
    monkeypatch.setattr(embedded.tokenizer, "chat_template", None)
    found = sv.audit([named], [ours], embedded)
    assert found.prompts.loc[0, "gap"] == templated.prompts.loc[0, "gap"]
    for template in (None, "{{ messages[7].content.nothing }}", "{{ raise_exception('no') }}"):
        monkeypatch.setattr(embedded.tokenizer, "chat_template", template)
        found = sv.audit([theirs], [ours], embedded)
        assert found.verdict.startswith(f"not judged: {NO_TEMPLATE}")
        assert not found.passed
        assert sv.audit([theirs], [theirs], embedded).passed


def test_reasoning_is_compared_but_not_read_again(embedded: sv.Pair) -> None:
    theirs = {"prompt": "x", "text": "think A", "has_reasoning": True}
    found = sv.audit([theirs], [{**theirs, "text": "think B"}], embedded)
    assert found.verdict.startswith(f"not judged: {REASONING}")
    assert "1 of 1 texts are reasoning and content" in str(found)
    assert sv.audit([theirs], [theirs], embedded).passed


@pytest.mark.parametrize("setting", [{"repetition_penalty": 1.1}, {"no_repeat_ngram_size": 3}])
def test_processed_scores_judge_nothing(
    embedded: sv.Pair, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any]
) -> None:
    prompts = sv.load_prompts(limit=2)
    alone = sv.generate(embedded, prompts, max_new_tokens=12, progress=False)
    fault = sv.strategy("inplace", break_invariant="bonus", rows=[1], from_round=1)
    wrong = sv.generate(embedded, prompts, strategy=fault, max_new_tokens=12, progress=False)
    for name, value in setting.items():
        monkeypatch.setattr(embedded.target.generation_config, name, value)
    found = sv.audit(alone.tokens, wrong.tokens, embedded, prompts=prompts)
    assert found.verdict.startswith(f"not judged: {PROCESSED}")
    assert any("generate() would apply it and specviz does not" in note for note in found.notes)
    assert sv.audit(alone.tokens, alone.tokens, embedded, prompts=prompts).passed
    # Runs of specviz process no scores.
    assert sv.audit(alone, wrong, embedded).unexplained == [1]


def test_a_prompt_that_shows_its_bos_is_read_with_one(embedded: sv.Pair) -> None:
    tokenizer = copy.deepcopy(embedded.tokenizer)
    tokenizer.bos_token = tokenizer.eos_token
    bos = (tokenizer.bos_token, tokenizer.eos_token_id)
    ends = TemplateProcessing(single=f"{bos[0]} $0", special_tokens=[bos])
    tokenizer.backend_tokenizer.post_processor = ends
    ids = []
    for prompt in ("x = 1", f"{bos[0]}x = 1"):
        output = from_record("it", {"prompt": prompt, "text": "a"})
        side = OutputSet("it", (output,))
        ids += [duo.prompt_ids for duo in pair_up(side, side, tokenizer, Endings())]
    assert ids[0] == ids[1]
    assert ids[0].count(bos[1]) == 1


def behind_a_tie(text: Any, **ours: Any) -> sv.Audit:
    """An audit in bfloat16, where the candidate takes the other token of a tie and ends so."""
    prompt, tokens, _, _ = a_tie()
    theirs = {"prompt": prompt, "token_ids": tokens, "max_tokens": len(tokens)}
    pair = make_pair("llama", torch.bfloat16)
    return sv.audit([theirs], [{"prompt": prompt, "token_ids": text, **ours}], pair)


@pytest.mark.parametrize(
    ("end", "ours", "verdict", "reason"),
    [
        (None, {}, "near tie", ""),
        (-1, {"max_tokens": -1}, "near tie", ""),
        (-1, {}, "unexplained", ""),  # an EOS, as the reference's budget is not reached
        (-1, {"finish_reason": "stop"}, "unexplained", ""),
        (-1, {"finish_reason": "length"}, "unknown", OPEN_END),
        (-1, {"finish_reason": "content_filter"}, "unknown", OPEN_END),
        (-1, {"finish_reason": "interrupted"}, "near tie", ""),
    ],
)
def test_an_end_behind_a_near_tie_is_judged(
    end: int | None, ours: dict[str, Any], verdict: str, reason: str
) -> None:
    _, tokens, at, text = a_tie()
    text = text[: len(tokens)] if end is None else text[: max(at + 2, len(tokens) - 4)]
    if ours.get("max_tokens"):
        ours = {"max_tokens": len(text)}
    found = behind_a_tie(text, **ours)
    entry = found.prompts.loc[0]
    assert entry["first_divergence"] == at
    assert (entry["verdict"], entry["reason"]) == (verdict, reason), found


def test_a_text_that_goes_on_behind_a_near_tie_is_open() -> None:
    _, tokens, _, text = a_tie()
    assert behind_a_tie(text).prompts.loc[0, "reason"] == OPEN_END
    assert behind_a_tie(text, max_tokens=len(text)).passed
    assert behind_a_tie(text, max_tokens=len(tokens)).prompts.loc[0, "reason"] == BEHIND_BUDGET


def test_one_row_that_ignores_eos_excuses_no_other() -> None:
    theirs = [said([*ENDED, 12, 13]), said(ENDED)]
    found = sv.audit(theirs, [said([*ENDED, 12, 13]), said([*ENDED, 8])], make_pair("llama"))
    assert found.prompts["reason"].tolist() == ["", BEHIND_EOS]


def test_texts_without_tokens_of_their_own(embedded: sv.Pair) -> None:
    for ours in ("\n    ret", "\n    return\ud800a", "\n    retur"):
        theirs = {"prompt": "def f():", "text": "\n    return"}
        for reason in (None, "stop"):
            output = {"prompt": "def f():", "text": ours, "finish_reason": reason}
            for sides in ((theirs, output), (output, theirs)):
                assert not sv.audit([sides[0]], [sides[1]], embedded).passed


def test_a_full_reference_explains_the_end_before_a_longer_text(embedded: sv.Pair) -> None:
    prompt = "def add(a, b):"
    (tokens,) = sv.generate(embedded, [prompt], max_new_tokens=8, progress=False).tokens
    theirs = {"prompt": prompt, "token_ids": tokens[:5], "max_tokens": 5}
    ours = {"prompt": prompt, "text": embedded.tokenizer.decode(tokens), "max_tokens": 8}
    assert sv.audit([theirs], [ours], embedded).prompts.loc[0, "verdict"] == "longer"
