"""`sv.watch` and decoders in styles that it once misjudged.

Each decoder is written for its test, with one row unless more are needed.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from conftest import make_pair
from transformers import DynamicCache

import specviz as sv
from specviz.checks.watch.requests import common

K, MAX_NEW_TOKENS = 3, 12
PROMPTS = [[5, 9, 11, 40, 7], [8, 21, 4], [30, 31, 32, 33, 34, 35, 36]]


@pytest.fixture(scope="module")
def pair() -> sv.Pair:
    return make_pair("llama")


def best(model, tokens: list[int], last: int = 1, **options) -> list[int]:
    """The choices after the last few tokens."""
    with torch.inference_mode():
        logits = model(torch.tensor([tokens]), **options).logits
    return logits[0, -last:].argmax(-1).tolist()


def drafted(pair: sv.Pair, tokens: list[int], count: int = K) -> list[int]:
    found = list(tokens)
    for _ in range(count):
        found += best(pair.draft, found)
    return found[len(tokens) :]


def audited(pair: sv.Pair, decode, prompts=PROMPTS, **options) -> sv.WatchReport:
    with sv.watch(pair.target, pair.draft) as watched:
        outputs = decode(prompts)
    return watched.audit(prompts, outputs, eos_token_ids=[], **options)


def keeping_one(pair: sv.Pair, prompt: list[int]) -> list[int]:
    """Verify K drafts without a cache, and keep the first new token alone."""
    text = list(prompt)
    while len(text) < len(prompt) + MAX_NEW_TOKENS:
        text.append(best(pair.target, text + drafted(pair, text), K + 1)[0])
    return text[len(prompt) :]


def with_saved_choice(pair: sv.Pair, prompt: list[int]) -> list[int]:
    """Feed drafts alone, and judge the first by the choice that was kept from before."""
    cache = DynamicCache()
    (choice,) = best(pair.target, prompt, past_key_values=cache)
    new: list[int] = []
    while len(new) < MAX_NEW_TOKENS:
        drafts = drafted(pair, prompt + new)
        choices = [choice, *best(pair.target, drafts, K, past_key_values=cache)]
        gained = common(drafts, choices)
        if gained < K:
            cache.crop(gained - K)
        new += [*drafts[:gained], choices[gained]]
        (choice,) = best(pair.target, new[-1:], past_key_values=cache)
    return new[:MAX_NEW_TOKENS]


@pytest.mark.parametrize("decode", [keeping_one, with_saved_choice])
def test_what_is_kept_of_a_round_may_be_another_choice(pair: sv.Pair, decode) -> None:
    report = audited(pair, lambda prompts: [decode(pair, each) for each in prompts])
    assert report.is_right, report
    costs = {cost.name for cost in report.costs} - {"finished rows"}
    assert "read again" in costs if decode is keeping_one else not costs


def test_texts_that_were_sampled_in_another_order_are_refused(pair: sv.Pair) -> None:
    def decode(prompts: list[list[int]]) -> list[list[int]]:
        return [with_saved_choice(pair, each) for each in prompts][::-1]

    said = r"outputs\[\d\] is not what was fed in \d+ of \d+ rounds; pass .* order of the"
    with pytest.raises(ValueError, match=said):  # they are not judged
        audited(pair, decode, greedy=False)


def test_a_text_that_ends_too_early_is_wrong(pair: sv.Pair) -> None:
    report = audited(
        pair,
        lambda prompts: [with_saved_choice(pair, each)[:7] for each in prompts],
        max_new_tokens=MAX_NEW_TOKENS,
    )
    assert {fault.rule for fault in report.faults} == {"budget"}
    assert "ends after 7 of 12 new tokens, and not with EOS" in report.verdict


def test_without_outputs_a_text_ends_with_its_budget(pair: sv.Pair) -> None:
    with sv.watch(pair.target, pair.draft) as watched:
        texts = [with_saved_choice(pair, each) for each in PROMPTS]
    report = watched.audit(PROMPTS, eos_token_ids=[], max_new_tokens=MAX_NEW_TOKENS)
    assert report.is_right, report
    for request, text in zip(report.requests, texts, strict=True):
        assert request.output == text[: len(request.output)]


def test_what_fills_an_output_behind_eos_is_cut(pair: sv.Pair) -> None:
    (prompt, *_) = PROMPTS
    with sv.watch(pair.target, pair.draft) as watched:
        text = with_saved_choice(pair, prompt)
    eos = text[-1]
    assert eos not in text[:-1]
    report = watched.audit([prompt], [[*text, 0, 0, 0]], eos_token_ids=[eos])
    assert report.is_right, report


def test_zeros_that_are_seen_are_named(pair: sv.Pair) -> None:
    """Their scores are 0, which is not nothing."""

    def decode(prompts: list[list[int]]) -> list[list[int]]:
        (prompt,) = prompts
        cache = DynamicCache()
        new = best(pair.target, prompt, past_key_values=cache)
        for layer in cache.layers:
            layer.keys = torch.nn.functional.pad(layer.keys, (0, 0, 2, 0))
            layer.values = torch.nn.functional.pad(layer.values, (0, 0, 2, 0))
        while len(new) < MAX_NEW_TOKENS:
            places = torch.tensor([[len(prompt) + len(new) - 1]])
            options = {"past_key_values": cache, "position_ids": places}
            new += best(pair.target, new[-1:], **options)
        return [new]

    report = audited(pair, decode, PROMPTS[:1])
    assert report.faults[0].rule == "mask"
    assert "sees slot 0, which holds zeros" in report.verdict


def test_a_cache_of_another_request_is_named(pair: sv.Pair) -> None:
    def decode(prompts: list[list[int]]) -> list[list[int]]:
        outputs = []
        cache = DynamicCache()  # one for all prompts
        for prompt in prompts:
            tokens = list(prompt)
            fed = tokens
            while len(tokens) < len(prompt) + MAX_NEW_TOKENS:
                fed = best(pair.target, fed, past_key_values=cache)
                tokens += fed
            outputs.append(tokens[len(prompt) :])
        return outputs

    report = audited(pair, decode)
    assert [fault.request for fault in report.faults] == [1, 2]
    assert "which holds K/V of token 0 of request 0" in report.verdict


@pytest.mark.parametrize("keeps_best", [True, False])
def test_rows_that_try_drafts_of_one_request(pair: sv.Pair, keeps_best: bool) -> None:
    """Two chains of drafts are verified as two rows; the better one is kept, or the other."""

    def decode(prompts: list[list[int]]) -> list[list[int]]:
        (prompt,) = prompts
        tokens = list(prompt)
        while len(tokens) < len(prompt) + MAX_NEW_TOKENS:
            chains = [drafted(pair, tokens), drafted(pair, tokens[1:])]
            ids = torch.tensor([[*tokens, *chain] for chain in chains])
            with torch.inference_mode():
                choices = pair.target(ids).logits[:, -K - 1 :].argmax(-1).tolist()
            gains = [common(*each) for each in zip(chains, choices, strict=True)]
            best_row = gains.index(max(gains) if keeps_best else min(gains))
            count = gains[best_row]
            tokens += [*chains[best_row][:count], choices[best_row][count]]
        return [tokens[len(prompt) :][:MAX_NEW_TOKENS]]

    report = audited(pair, decode, PROMPTS[2:])
    assert report.is_right, report
    assert any("another row of the forward read as well" in note for note in report.notes)


def test_a_report_without_a_record_still_has_its_verdict(pair: sv.Pair) -> None:
    report = audited(pair, lambda prompts: [keeping_one(pair, each) for each in prompts])
    bare = replace(report, record=None, why_no_record="rows must be different ones")
    assert bare.verdict == report.verdict
    assert str(bare).endswith("so no picture can be drawn")
    with pytest.raises(ValueError, match=r"this run fits no record: rows must .*; go by what"):
        bare.step_through()


class Gathered:
    """Each request has a cache of its own; a forward joins them, and cuts them apart again."""

    def __init__(self, pair: sv.Pair, prompt: list[int]) -> None:
        self.prompt = prompt
        self.cache = DynamicCache()
        self.text = prompt + best(pair.target, prompt, past_key_values=self.cache)

    @property
    def is_done(self) -> bool:
        return len(self.text) >= 2 * len(self.prompt) + 3  # at other times in all rows


def joined(rows: list[Gathered]) -> tuple[DynamicCache, list[int]]:
    lengths = [row.cache.get_seq_length() for row in rows]
    both = DynamicCache()
    for number, _ in enumerate(rows[0].cache.layers):
        states = []
        for name in ("keys", "values"):
            own = [getattr(row.cache.layers[number], name) for row in rows]
            fill = [max(lengths) - length for length in lengths]
            wide = [
                torch.nn.functional.pad(each, (0, 0, empty, 0))
                for each, empty in zip(own, fill, strict=True)
            ]
            states.append(torch.cat(wide))
        both.update(*states, number)
    return both, lengths


def verified(pair: sv.Pair, rows: list[Gathered], drafts: list[list[int]]) -> list[list[int]]:
    """The target's choices; the caches of the rows hold K/V of all tokens that were fed."""
    both, lengths = joined(rows)
    width = max(lengths)
    ids = torch.tensor([[row.text[-1], *draft] for row, draft in zip(rows, drafts, strict=True)])
    mask = torch.tensor([[0] * (width - n) + [1] * (n + K + 1) for n in lengths])
    places = torch.tensor([list(range(n, n + K + 1)) for n in lengths])
    with torch.inference_mode():
        logits = pair.target(
            ids, attention_mask=mask, position_ids=places, past_key_values=both
        ).logits
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        row.cache = DynamicCache()
        for number, layer in enumerate(both.layers):
            first = width - length
            row.cache.update(
                layer.keys[i : i + 1, :, first:], layer.values[i : i + 1, :, first:], number
            )
    return logits.argmax(-1).tolist()


def test_the_record_of_rows_that_close_up_holds_all_rules(pair: sv.Pair) -> None:
    """Requests take the rows of those that end, and others move up: K/V moves between all rows."""

    def decode(prompts: list[list[int]]) -> list[list[int]]:
        waiting = list(prompts)
        rows: list[Gathered] = []
        texts = {}
        while waiting or rows:
            while waiting and len(rows) < 3:
                rows.append(Gathered(pair, waiting.pop(0)))
            drafts = [drafted(pair, row.text) for row in rows]
            for row, draft, choices in zip(rows, drafts, verified(pair, rows, drafts), strict=True):
                gained = common(draft, choices)
                row.text += [*draft[:gained], choices[gained]]
                row.cache.crop(len(row.text) - 1 - row.cache.get_seq_length())
                texts[tuple(row.prompt)] = row.text[len(row.prompt) :]
            rows = [row for row in rows if not row.is_done]
        return [texts[tuple(prompt)] for prompt in prompts]

    prompts = [*PROMPTS, [50, 51, 52, 53], [60, 3], [70, 71, 72, 73, 74, 75, 76, 77]]
    report = audited(pair, decode, prompts)
    assert report.is_right, report
    assert sv.check_invariants(report.trace) == []


def leaving_early(pair: sv.Pair, prompt: list[int], shares: bool, bonus: bool) -> list[int]:
    """Draft with the target's first layer, in the target's own cache or in another one."""
    target, depth = pair.target, pair.target.config.num_hidden_layers
    cache = DynamicCache()
    other = cache if shares else DynamicCache()
    text = list(prompt)
    while len(text) < len(prompt) + MAX_NEW_TOKENS:
        known, drafts, fed = other.get_seq_length(), [], text[other.get_seq_length() :]
        target.config.num_hidden_layers = 1
        try:
            for _ in range(K):
                fed = best(target, fed, past_key_values=other)
                drafts += fed
        finally:
            target.config.num_hidden_layers = depth
        if shares:
            layer = cache.layers[0]
            layer.keys, layer.values = layer.keys[:, :, :known], layer.values[:, :, :known]
        fed = [*text[cache.get_seq_length() :], *drafts]
        choices = best(target, fed, K + 1, past_key_values=cache)
        gained = common(drafts, choices)
        text += [*drafts[:gained], choices[gained] if bonus else drafts[gained - 1]]
        for each in (cache, other):
            each.crop(min(len(text) - 1 - each.get_seq_length(), 0))
    return text[len(prompt) :][:MAX_NEW_TOKENS]


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("shares", [True, False])
def test_forwards_of_fewer_layers_are_drafts(pair: sv.Pair, shares: bool, bonus: bool) -> None:
    with sv.watch(pair.target) as watched:
        outputs = [leaving_early(pair, each, shares, bonus) for each in PROMPTS]
    report = watched.audit(PROMPTS, outputs, eos_token_ids=[])
    assert report.is_right == bonus, report
    assert [fault.rule for fault in report.faults[:1]] == ([] if bonus else ["bonus"])
    assert report.costs == []
    assert [note for note in report.notes if "fewer layers" in note] == list(report.notes)
    assert bool(report.notes) == shares, "K/V of all layers is another than that of one"
    assert not bonus or sv.check_invariants(report.trace) == []


def test_early_exit_of_transformers_is_right(pair: sv.Pair) -> None:
    options = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None}
    with sv.watch(pair.target) as watched:
        outputs = [
            pair.target.generate(torch.tensor([each]), assistant_early_exit=1, **options)
            for each in PROMPTS
        ]
    new = [text[0, len(each) :].tolist() for text, each in zip(outputs, PROMPTS, strict=True)]
    report = watched.audit(PROMPTS, new, eos_token_ids=[])
    assert report.is_right, report
    assert report.costs == []
    assert {len(each.rounds[0].drafts) for each in report.requests} != {0}


class Holes:
    """K/V of all tokens that were ever fed, one column after the other; each row knows its own.

    What fills a row behind its tokens sees itself alone.
    """

    def __init__(self, pair: sv.Pair, rows: int) -> None:
        self._target, self._cache = pair.target, DynamicCache()
        self.own: list[list[int]] = [[] for _ in range(rows)]

    def read(self, fed: list[list[int]], stale: tuple[int, ...] = ()) -> list[list[int]]:
        """Read tokens behind those of each row; return the choices after them.

        Args:
            fed: of each row. `None` stands for the token before it, once more.
            stale: slots that the first token of each row sees besides.
        """
        past, most = self._cache.get_seq_length(), max(map(len, fed))
        ids = torch.zeros(len(fed), most, dtype=torch.long)
        positions = ids.clone()
        seen = torch.zeros(len(fed), 1, most, past + most, dtype=torch.bool)
        for row, tokens in enumerate(fed):
            seen[row, 0, :, past:] = torch.eye(most, dtype=torch.bool)
            index = len(self.own[row]) - 1
            for j, token in enumerate(tokens):
                index += token is not None
                ids[row, j] = tokens[j - 1] if token is None else token
                positions[row, j] = index
                seen[row, 0, j, self.own[row]] = True
                seen[row, 0, j, past : past + j + 1] = True
            seen[row, 0, 0, list(stale)] = True
        with torch.inference_mode():
            logits = self._target(
                ids, attention_mask=seen, position_ids=positions, past_key_values=self._cache
            ).logits
        self.latest = [
            [past + j for j, token in enumerate(tokens) if token is not None] for tokens in fed
        ]
        return [logits[row, : len(tokens)].argmax(-1).tolist() for row, tokens in enumerate(fed)]

    def keep(self, row: int, count: int) -> None:
        """Keep K/V of this many of the tokens that were read last."""
        self.own[row] += self.latest[row][:count]


def of_many_lengths(pair: sv.Pair, prompts: list[list[int]], twice: bool) -> list[list[int]]:
    """Verify 1, 2, 3, ... drafts in the rows. `twice` feeds each pending token twice."""
    holes, texts = Holes(pair, len(prompts)), [list(prompt) for prompt in prompts]
    while any(len(t) < len(p) + MAX_NEW_TOKENS for t, p in zip(texts, prompts, strict=True)):
        drafts = [drafted(pair, text, row + 1) for row, text in enumerate(texts)]
        rest = [text[len(own) :] for text, own in zip(texts, holes.own, strict=True)]
        again = [None] if twice and holes.own[0] else []
        fed = [[*known, *again, *more] for known, more in zip(rest, drafts, strict=True)]
        for row, choices in enumerate(holes.read(fed)):
            said = choices[-len(drafts[row]) - 1 :]
            gained = common(drafts[row], said)
            holes.keep(row, len(rest[row]) + gained)
            texts[row] += [*drafts[row][:gained], said[gained]]
    return [t[len(p) :][:MAX_NEW_TOKENS] for t, p in zip(texts, prompts, strict=True)]


@pytest.mark.parametrize("twice", [False, True])
def test_what_fills_a_row_behind_its_tokens_may_see_itself(pair: sv.Pair, twice: bool) -> None:
    report = audited(pair, lambda prompts: of_many_lengths(pair, prompts, twice))
    assert report.is_right is not twice, report
    assert [fault.rule for fault in report.faults[:1]] == (["mask"] if twice else [])


def test_drafts_that_nothing_verified_are_a_fault_even_if_they_are_right() -> None:
    """The draft is the target, so the texts are right; the first draft is never fed."""
    target = make_pair("llama").target
    pair = sv.Pair(target, copy.deepcopy(target))

    def decode(prompt: list[int]) -> list[int]:
        text = list(prompt)
        while len(text) < len(prompt) + MAX_NEW_TOKENS:
            drafts = drafted(pair, text)
            best(target, text + drafts[1:], K)
            text += drafts
        return text[len(prompt) :]

    report = audited(pair, lambda prompts: [decode(prompt) for prompt in prompts])
    assert report.wrong == []
    assert {fault.rule for fault in report.faults} == {"lengths"}, report


def in_parts(pair: sv.Pair, prompts: list[list[int]], sees_stale: bool) -> list[list[int]]:
    """Read each prompt in parts of three tokens, behind the text before it in the same row."""
    holes, outputs = Holes(pair, 1), []
    for prompt in prompts:
        stale = (holes.own[0][0],) if sees_stale and outputs else ()
        text, holes.own[0] = list(prompt), []
        while len(text) < len(prompt) + MAX_NEW_TOKENS:
            rest = text[len(holes.own[0]) :]
            drafts = drafted(pair, text) if len(rest) <= 3 else []
            (choices,) = holes.read([[*rest[:3], *drafts]], stale if not holes.own[0] else ())
            gained = common(drafts, choices[-K - 1 :]) if drafts else 0
            holes.keep(0, len(rest[:3]) + gained)
            if drafts:
                text += [*drafts[:gained], choices[-K - 1 :][gained]]
        outputs.append(text[len(prompt) :][:MAX_NEW_TOKENS])
    return outputs


@pytest.mark.parametrize("sees_stale", [False, True])
def test_prompts_that_are_read_in_parts_beside_the_text_before(
    pair: sv.Pair, sees_stale: bool
) -> None:
    report = audited(pair, lambda prompts: in_parts(pair, prompts, sees_stale))
    assert report.is_right is not sees_stale, report
    assert {(fault.request, fault.rule) for fault in report.faults} == (
        {(1, "mask"), (2, "mask")} if sees_stale else set()
    )


@pytest.mark.parametrize("strategy", ["exspec", "inplace"])
@pytest.mark.parametrize("more", [[], [41, 3, 27]])
def test_prompts_that_are_equal_or_begin_alike_are_told_apart(
    pair: sv.Pair, strategy: str, more: list[int]
) -> None:
    settings = {"strategy": strategy, "batch_size": 1, "num_draft_tokens": K, "progress": False}
    prompts = [PROMPTS[2], PROMPTS[0], [*PROMPTS[2], *more]]
    report = audited(
        pair, lambda given: sv.generate(pair, given, max_new_tokens=8, **settings).tokens, prompts
    )
    assert report.is_right, report


def test_an_audit_leaves_the_model_in_its_mode() -> None:
    usual = make_pair("llama")
    pair = sv.Pair(copy.deepcopy(usual.target), usual.draft)
    pair.target.train()
    audited(pair, lambda prompts: [keeping_one(pair, each) for each in prompts])
    assert pair.target.training
