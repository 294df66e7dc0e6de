"""A decoder in plain transformers: rejected drafts are hidden by a 2-D mask.

It keeps one DynamicCache for the batch, pads prompts on the left, counts positions from the mask
and drafts without a cache. Its calls of the writer are all that was added to it.
"""

from functools import cache
from typing import Any

import torch
from conftest import make_pair
from transformers import DynamicCache

import specviz as sv

PROMPTS = [[3, 14, 15, 92, 65], [35, 89], [79, 32, 38, 46, 26, 43, 38], [32, 79, 50]]
K = 4


def writer(**settings: Any) -> sv.TraceWriter:
    """An empty log of a decoder of PROMPTS with the pair "llama"."""
    given = {"vocabulary_size": 97, "num_draft_tokens": K, "budget": 64, "decoder": "masking"}
    return sv.TraceWriter(PROMPTS, **(given | settings))


@cache
def logged(slip: int = 0, rounds: int = 5) -> sv.TraceWriter:
    """A log of the decoder below."""
    log = writer()
    MaskingDecoder(make_pair("llama"), PROMPTS, log, K, slip).decode(rounds)
    return log


class MaskingDecoder:
    """Some rounds of greedy speculation over a few prompts, logged.

    Args:
        pair: target and draft.
        prompts: token ids, all of them rows of one batch.
        writer: takes each forward of the target and each round.
        K: draft tokens a round.
        slip: how many rejected drafts stay visible; 0 is right.
    """

    def __init__(
        self, pair: sv.Pair, prompts: list[list[int]], writer: Any, K: int = 4, slip: int = 0
    ) -> None:
        self.pair = pair
        self.rows = [list(prompt) for prompt in prompts]
        self.writer = writer
        self.K = K
        self.slip = slip
        self.cache = DynamicCache()
        self.seen = torch.zeros(len(prompts), 0, dtype=torch.bool)
        self.numbers = list(range(len(prompts)))

    def decode(self, rounds: int) -> list[list[int]]:
        """Return the rows, prompts included, after some rounds."""
        with torch.inference_mode():
            self._prefill()
            for _ in range(rounds):
                self._round()
        return self.rows

    def _prefill(self) -> None:
        lengths = torch.tensor([len(row) for row in self.rows])
        padding = lengths.max() - lengths
        padded = []
        for count, row in zip(padding.tolist(), self.rows, strict=True):
            padded.append([0] * count + row[:-1])
        self._read(torch.tensor(padded), -padding)

    def _round(self) -> None:
        lengths = torch.tensor([len(row) for row in self.rows])
        ids = torch.tensor([[row[-1], *self._guess(row)] for row in self.rows])  # (rows, K+1)
        pending = self.seen.shape[1]
        choices = self._read(ids, lengths - 1)
        accepted, emitted = [], []
        for i, row in enumerate(self.rows):
            a = 0
            while a < self.K and ids[i, a + 1] == choices[i, a]:
                a += 1
            emitted.append(choices[i, : a + 1].tolist())
            accepted.append(a)
            row += emitted[i]
            self.seen[i, pending + a + 1 + self.slip :] = False
        end = sv.RoundEnd(
            rows=self.numbers,
            requests=self.numbers,
            drafts=ids[:, 1:],
            accepted=accepted,
            emitted=emitted,
            choices=choices,
        )
        self.writer.round(end)

    def _read(self, ids: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Feed `ids` to the target, log it, and return the target's choices."""
        index = begin[:, None] + torch.arange(ids.shape[1])  # negative in padding
        self.seen = torch.cat([self.seen, index >= 0], dim=1)  # (rows, slots)
        positions = (self.seen.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        self.writer.forward(
            "target",
            rows=self.numbers,
            requests=self.numbers,
            tokens=ids,
            indices=index,
            positions=positions,
            slots=torch.arange(self.seen.shape[1])[None, -ids.shape[1] :],
            visible=self.seen,
        )
        output = self.pair.target(
            ids,
            attention_mask=self.seen.int(),
            position_ids=positions,
            past_key_values=self.cache,
        )
        return output.logits.float().argmax(-1)  # (rows, q)

    def _guess(self, row: list[int]) -> list[int]:
        tokens = list(row)
        for _ in range(self.K):
            logits = self.pair.draft(torch.tensor([tokens])).logits[0, -1]  # (V,)
            tokens.append(int(logits.argmax()))
        return tokens[len(row) :]
