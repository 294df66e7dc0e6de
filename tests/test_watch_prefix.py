"""`sv.watch` and decoders that read what several prompts have in common only once."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from conftest import make_pair
from transformers import DynamicCache

import specviz as sv
from specviz.checks.watch.requests import common

K, MAX_NEW_TOKENS = 3, 12
PREFIX = [5, 9, 11, 40, 7, 61]
PROMPTS = [[*PREFIX, *rest] for rest in ([8, 21, 4], [30, 31], [12], [8, 22, 4, 3])]


@pytest.fixture(scope="module")
def pair() -> sv.Pair:
    return make_pair("llama")


class PrefixDecoder:
    """Speculative decoding, one request after the other, behind copies of one prefix.

    Args:
        pair: the models.
        drafts_share: whether the draft's prefix is read once, too.
        left_out: tokens at the end of the prefix that later requests believe to be in their copy.
    """

    def __init__(self, pair: sv.Pair, drafts_share: bool = True, left_out: int = 0) -> None:
        self.pair = pair
        self.drafts_share = drafts_share
        self.left_out = left_out

    @torch.inference_mode()
    def read(self, model, cache: DynamicCache, tokens: list[int]) -> list[int]:
        """Read tokens behind those of a cache; return the choice after each."""
        first = cache.get_seq_length()
        positions = torch.arange(first, first + len(tokens))[None]
        output = model(torch.tensor([tokens]), past_key_values=cache, position_ids=positions)
        return output.logits[0].argmax(-1).tolist()

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        models = [self.pair.target, self.pair.draft]
        kept = [DynamicCache(), DynamicCache()]
        for model, cache in zip(models, kept, strict=True):
            if model is self.pair.target or self.drafts_share:
                self.read(model, cache, PREFIX)
        outputs = []
        for number, prompt in enumerate(prompts):
            caches = deepcopy(kept)
            if number and self.left_out:
                caches[0].crop(-self.left_out)
            outputs.append(self.one(prompt, *caches))
        return outputs

    def one(self, prompt: list[int], target: DynamicCache, draft: DynamicCache) -> list[int]:
        if len(prompt) > len(PREFIX) + 1:
            self.read(self.pair.target, target, prompt[len(PREFIX) : -1])
        text = list(prompt)
        while len(text) < len(prompt) + MAX_NEW_TOKENS:
            drafts: list[int] = []
            for _ in range(K):
                behind = [*text, *drafts][draft.get_seq_length() :]
                drafts.append(self.read(self.pair.draft, draft, behind)[-1])
            chosen = self.read(self.pair.target, target, [text[-1], *drafts])
            a = common(drafts, chosen)
            text += chosen[: a + 1]
            for cache in (target, draft):
                cache.crop(min(len(text) - 1 - cache.get_seq_length(), 0))
        return text[len(prompt) :][:MAX_NEW_TOKENS]


def audited(pair: sv.Pair, decode, prompts=PROMPTS) -> sv.WatchReport:
    with sv.watch(pair.target, pair.draft) as watched:
        outputs = decode(prompts)
    return watched.audit(prompts, outputs, eos_token_ids=[])


@pytest.mark.parametrize("drafts_share", [True, False])
def test_one_request_after_the_other(pair: sv.Pair, drafts_share: bool) -> None:
    report = audited(pair, PrefixDecoder(pair, drafts_share).run)
    assert report.is_right
    assert report.costs == []
    with pytest.raises(ValueError, match="request 1 goes on behind K/V that another request read"):
        report.trace  # noqa: B018


@torch.inference_mode()
def in_one_batch(pair: sv.Pair, prompts: list[list[int]], shift: int = 0) -> list[list[int]]:
    """Autoregressive decoding of equally long prompts, behind one prefix for all rows.

    `shift` is added to the positions of all tokens behind the prefix.
    """
    cache = DynamicCache()
    pair.target(torch.tensor([PREFIX]), past_key_values=cache)
    cache.batch_repeat_interleave(len(prompts))
    tokens = torch.tensor(prompts)[:, len(PREFIX) :]
    outputs: list[list[int]] = [[] for _ in prompts]
    while len(outputs[0]) < MAX_NEW_TOKENS:
        first = cache.get_seq_length() + shift
        positions = torch.arange(first, first + tokens.shape[1])[None].expand(len(prompts), -1)
        logits = pair.target(tokens, past_key_values=cache, position_ids=positions).logits
        tokens = logits[:, -1:].argmax(-1)
        for output, token in zip(outputs, tokens[:, 0].tolist(), strict=True):
            output.append(token)
    return outputs


ALIKE = [[*PREFIX, *rest] for rest in ([8, 21, 4], [30, 31, 3], [8, 21, 5], [30, 31, 3])]


@pytest.mark.parametrize("shift", [0, 1])
def test_rows_of_one_batch_also_with_equal_prompts(pair: sv.Pair, shift: int) -> None:
    report = audited(pair, lambda prompts: in_one_batch(pair, prompts, shift), ALIKE)
    wrong = {(row, "positions") for row in range(len(ALIKE)) if shift}
    assert {(fault.row, fault.rule) for fault in report.faults} == wrong
    assert report.is_right == (not shift)
    assert shift or report.costs == []


def test_a_prefix_that_lost_its_end_is_named(pair: sv.Pair) -> None:
    report = audited(pair, PrefixDecoder(pair, left_out=1).run)
    assert [fault.request for fault in report.faults] == [1, 2, 3]
    assert report.faults[0].rule == "kv", report
