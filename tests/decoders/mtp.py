"""Drafts from MTP layers on the target's hidden states, for a batch of ragged rows in slots.

The target's slot of a token is its index, and that of an entry of an MTP layer is the index of its
hidden state. Rejected drafts and entries that were made of drafts are written over.
"""

from typing import Any

import torch

from .base import Batch, Tokens
from .sampling import Sampling


class Slabs:
    """K/V of all layers, (rows, heads, slots, size), allocated as layers come."""

    is_compileable = False

    def __init__(self, rows: int, size: int) -> None:
        self.shape = (rows, size)
        self.held: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.rows = self.slots = torch.zeros(0)  # of the next forward, (batch,), (batch, tokens)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, size = self.shape
        if layer not in self.held:
            shapes = [(rows, each.shape[1], size, each.shape[3]) for each in (keys, values)]
            self.held[layer] = (keys.new_zeros(shapes[0]), values.new_zeros(shapes[1]))
        held = self.held[layer]
        for own, new in zip(held, (keys, values), strict=True):
            own[self.rows[:, None], :, self.slots] = new.transpose(1, 2)
        return held[0][self.rows], held[1][self.rows]

    def get_seq_length(self, layer: int = 0) -> int:
        return 0  # it differs by row; the mask and the positions are given


class Hidden(Batch):
    """What drafters share that read hidden states. The first round reads prompts, without drafts.

    `hidden` has of each row the hidden states of all tokens but the pending one, (tokens, size).
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.gains: dict[int, int] = {}  # tokens that rows gained in the round before
        self.gained = 0  # the most of them

    def prefill(self) -> None:
        self.size = max(map(len, self.rows)) + self.max_new_tokens + 2 * self.K + 4
        self.target_cache = Slabs(len(self.rows), self.size)
        self.draft_cache = Slabs(len(self.rows), self.size)
        self.hidden: list[torch.Tensor] = []

    def places(self) -> list[int]:
        """Return the rows' places in the caches."""
        return self.requests

    def propose(self) -> list[Tokens]:
        return self.drafts() if self.hidden else [[] for _ in self.rows]

    def drafts(self) -> list[Tokens]:
        raise NotImplementedError

    def verify(self, drafts: list[Tokens]) -> list[Tokens]:
        return self.judged(drafts).argmax(-1).tolist()

    def judged(self, drafts: list[Tokens]) -> torch.Tensor:
        """Return the target's logits (rows, K + 1, V), of prompts those behind their last token."""
        starts = [len(each) for each in self.hidden] or [0] * len(self.rows)
        unread = [row[start:] for row, start in zip(self.longer(drafts), starts, strict=True)]
        width = max(map(len, unread))
        ids = torch.tensor([new + [0] * (width - len(new)) for new in unread])
        slots = torch.tensor(starts)[:, None] + torch.arange(width)
        self.target_cache.rows, self.target_cache.slots = torch.tensor(self.places()), slots
        output = self.target(
            ids, attention_mask=self.up_to(slots)[:, None], position_ids=slots,
            past_key_values=self.target_cache, output_hidden_states=True,
        )  # fmt: skip
        self.read = self.chosen(output.hidden_states)
        if self.hidden:
            return output.logits
        self.hidden = [self.read[i, :0] for i in range(len(self.rows))]
        return torch.stack([output.logits[i, [len(new) - 1]] for i, new in enumerate(unread)])

    def chosen(self, hidden: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return the hidden states that the drafter reads, (rows, tokens, size)."""
        return hidden[-1]

    def up_to(self, slots: torch.Tensor) -> torch.Tensor:
        return torch.arange(self.size) <= slots[:, :, None]

    def align(self, new: list[Tokens]) -> None:
        pairs = zip(self.requests, self.rows, self.hidden, strict=True)
        self.gains = {request: len(row) - 1 - len(known) for request, row, known in pairs}
        self.gained = max(self.gains.values())
        self.hidden = [
            torch.cat([known, self.read[i, : len(row) - 1 - len(known)]])
            for i, (row, known) in enumerate(zip(self.rows, self.hidden, strict=True))
        ]

    def leave(self, staying: list[int]) -> None:
        self.hidden = [self.hidden[row] for row in staying]


class Mtp(Hidden):
    """Right. Behind the last layer, drafts come from its own output."""

    def drafts(self) -> list[Tokens]:
        layers = len(self.draft.layers)
        ends = torch.tensor([[len(known)] for known in self.hidden])
        width = self.entries()
        at = ends - width + torch.arange(width)
        self.real = at >= 0
        at = at.maximum(self.least(ends))  # shorter rows write their first entry again
        given = torch.stack(
            [self.given(known, where) for known, where in zip(self.hidden, at, strict=True)]
        )
        drafts: list[Tokens] = [[] for _ in self.rows]
        for place in range(self.wanted()):
            depth = min(place, layers - 1)
            if place >= layers:
                at, given = at[:, -1:] + 1, given[:, -1:]
            ahead = [
                [row[i] for i in (where + depth + 1).tolist()]
                for row, where in zip(self.longer(drafts), at, strict=True)
            ]
            given = self.layer(depth, torch.tensor(ahead), given, at)
            chosen = self.choose(self.draft._project_to_logits(given[:, -1]))
            for new, token in zip(drafts, chosen, strict=True):
                new.append(token)
        return drafts

    def wanted(self) -> int:
        return self.K

    def choose(self, logits: torch.Tensor) -> Tokens:
        return logits.argmax(-1).tolist()

    def entries(self) -> int:
        """Return how many entries are read: those that are new, and those made of drafts before."""
        return self.gained + len(self.draft.layers) - 1

    def least(self, ends: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(ends)

    def given(self, known: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Return the hidden states for entries of the first layer."""
        return known[at]

    def positions(self, depth: int, at: torch.Tensor) -> torch.Tensor:
        return at + depth + 1

    def layer(
        self, depth: int, ids: torch.Tensor, given: torch.Tensor, at: torch.Tensor
    ) -> torch.Tensor:
        """Feed entries to a layer; return what it gives."""
        self.draft_cache.rows, self.draft_cache.slots = torch.tensor(self.places()), at
        embeds = self.draft.embed_tokens(ids)
        positions = self.positions(depth, at)
        return self.draft.layers[depth](
            embeds, given, position_ids=positions,
            position_embeddings=self.draft.rotary_emb(embeds, position_ids=positions),
            attention_mask=self.up_to(at)[:, None], past_key_values=self.draft_cache,
        )  # fmt: skip


class LeftPadded(Mtp):
    """Right, without a cache of the drafter: all entries are read again, padded on the left."""

    def entries(self) -> int:
        self.depth = -1  # that was run last
        return max(map(len, self.hidden))

    def layer(
        self, depth: int, ids: torch.Tensor, given: torch.Tensor, at: torch.Tensor
    ) -> torch.Tensor:
        if depth == self.depth:  # the last layer on its own output
            ids, given = torch.cat([self.ids, ids], 1), torch.cat([self.last, given], 1)
            at = torch.cat([self.at, at], 1)
            self.real = torch.cat([self.real, self.real[:, -1:]], 1)
        self.depth, self.ids, self.last, self.at = depth, ids, given, at
        embeds = self.draft.embed_tokens(ids)
        positions = self.positions(depth, at)
        mask = torch.ones(at.shape[1], at.shape[1], dtype=torch.bool).tril() & self.real[:, None]
        return self.draft.layers[depth](
            embeds, given, position_ids=positions,
            position_embeddings=self.draft.rotary_emb(embeds, position_ids=positions),
            attention_mask=mask[:, None], past_key_values=None,
        )  # fmt: skip


class Refilled(Mtp):
    """Right: a prompt is read alone when one of two places is free."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        self.rows = [list(prompt) for prompt in prompts]
        self.prefill()
        self.rows, self.requests, self.place = [], [], dict[int, int]()
        self.outputs: list[Tokens] = [[] for _ in prompts]
        waiting = list(range(len(prompts)))
        while waiting or self.requests:
            while waiting and len(self.requests) < 2:
                self.enter(waiting[0], list(prompts[waiting.pop(0)]))
            self.go_on()
        return self.outputs

    def enter(self, request: int, prompt: Tokens) -> None:
        others, gained = (self.rows, self.requests, self.hidden), self.gained
        self.place[request] = min({0, 1} - set(self.places()))
        self.rows, self.requests, self.hidden = [prompt], [request], []
        self.go_on()
        self.rows, self.requests = others[0] + self.rows, others[1] + self.requests
        self.hidden = others[2] + self.hidden
        self.gained = max(gained, self.gained)

    def go_on(self) -> None:
        new = self.round()
        self.rows = [row + tokens for row, tokens in zip(self.rows, new, strict=True)]
        self.align(new)
        staying = self.commit(self.outputs, new)
        self.rows = [self.rows[row] for row in staying]
        self.requests = [self.requests[row] for row in staying]
        self.leave(staying)

    def places(self) -> list[int]:
        return [self.place[request] for request in self.requests]


class HiddenOneOff(Mtp, rule="caches", affects="speed", model="draft"):
    """A token is paired with the hidden state before the one that belongs to it."""

    def given(self, known: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return known[(at - 1).clamp(min=0)]


class EntriesKept(Mtp, rule="caches", affects="speed", model="draft"):
    """Entries that were made of drafts are not read again once these are decided."""

    def least(self, ends: torch.Tensor) -> torch.Tensor:
        gains = torch.tensor([[self.gains[request]] for request in self.requests])
        return ends - gains


class OwnOutputKept(Mtp, rule="caches", affects="speed", model="draft"):
    """Entries of accepted drafts stay as they were made, of the last layer's own output."""

    def entries(self) -> int:
        return 1 if self.draft_cache.held else self.gained


class Rejected(Mtp, rule="caches", affects="speed", model="draft"):
    """The last entry has the last hidden state of the verification, of a rejected draft."""

    def given(self, known: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        found = super().given(known, at)
        row = next(i for i, each in enumerate(self.hidden) if each is known)
        if self.draft_cache.held:
            found = torch.cat([found[:-1], self.read[row, -1:]])
        return found


class FirstDropped(Mtp, rule="drafts", affects="speed", model="draft"):
    """The first draft is dropped, so that each is verified one place too early."""

    def wanted(self) -> int:
        return self.K + 1

    def drafts(self) -> list[Tokens]:
        return [row[1:] for row in super().drafts()]


class PositionsDrift(Mtp, rule="positions", affects="speed", model="draft"):
    """Positions count drafts that were rejected."""

    def prefill(self) -> None:
        super().prefill()
        self.drift = 0

    def align(self, new: list[Tokens]) -> None:
        before = bool(self.hidden[0].shape[0])
        super().align(new)
        if before:
            self.drift += self.K + 1 - self.gained

    def positions(self, depth: int, at: torch.Tensor) -> torch.Tensor:
        return super().positions(depth, at) + self.drift


class Sampled(Mtp, Sampling):
    """Right: drafts are drawn from the distributions of MTP layers, and judged by p / q."""

    def round(self) -> list[Tokens]:
        self.q: list[torch.Tensor] = []
        drafts = torch.tensor(self.propose())
        p = self.warp(self.judged(drafts.tolist()))
        q = torch.stack(self.q, dim=1) if self.q else p[:, :0]
        return [self.judge(*row) for row in zip(drafts, q, p, strict=True)]

    def choose(self, logits: torch.Tensor) -> Tokens:
        self.q.append(self.warp(logits))
        return [self.draw(weights) for weights in self.q[-1]]


class MatchesBest(Sampled, rule="acceptance", affects="text"):
    """A draft is accepted if it is the target's best token, as in greedy decoding."""

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> Tokens:
        new = self.accept(drafts.tolist(), p.argmax(-1).tolist())
        return [*new[:-1], self.draw(p[len(new) - 1])]
