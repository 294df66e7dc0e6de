"""Drafts of a head from many starts of a text at once, for training and measuring.

In decoding, a head reads entries one after the other and finds earlier ones in a cache. Here the
true entries of a text are read once, and each chain attends to those before its start and to its
own.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from specviz.engine.heads import DFlashHead, DraftHead, EagleHead, MtpHead, ResidualHeads
from specviz.engine.heads.modules import HeadOutput, at, shifted
from specviz.zoo.heads.blocks import MtpEntries, blocks


def unroll(
    head: DraftHead, tokens: Tensor, features: Tensor, starts: Tensor, steps: int
) -> list[HeadOutput]:
    """Return logits and own features, (b, m, ...) each, at each step of chains.

    Step s of a chain reads token start + s, which is given, and its own feature of the token
    before. It predicts token start + s + 1. Of Medusa's and Clover's heads, step s is head s; of
    DFlash, it is mask s of a block, and the later tokens are not read.

    Args:
        head: attached to its target.
        tokens: (b, T).
        features: (b, T, F), the target's, as `select` gives them.
        starts: (b, m), each with start + steps <= T, and from 1 on for MTP and DFlash.
        steps: S.
    """
    if isinstance(head, DFlashHead):
        drafted = blocks(head, tokens, features, starts)
        return [
            HeadOutput(drafted.logits[:, :, step], drafted.hidden[:, :, step])
            for step in range(steps)
        ]
    entries = shifted(head.fuse(features))
    states = at(entries, starts)
    outputs = []
    if isinstance(head, ResidualHeads):
        if head.settings.block:
            chains = Chains(head.block, head.block.attended(entries, None), starts)
            states = chains.step(states, None, 0)
        for number in range(steps):
            output = head.step(states, at(tokens, starts + number), number)
            outputs.append(output)
            states = output.hidden
        return outputs
    embedded = head.target_embedding(tokens)
    if isinstance(head, MtpHead):
        layer = MtpEntries(head)
        attended = layer.attended(layer.joined(entries, embedded), None)
        chains = Chains(layer, attended, starts, hides_first=True)  # it has no entry 0
        for step in range(steps):
            joined = layer.joined(states, at(embedded, starts + step))
            states = chains.step(joined, None, step)
            outputs.append(HeadOutput(head.to_logits(states), states))
        return outputs
    assert isinstance(head, EagleHead)
    attended = head.midlayer.attended(entries, embedded)
    chains = Chains(head.midlayer, attended, starts, head.settings.hides_first)
    for step in range(steps):
        states = chains.step(states, at(embedded, starts + step), step)
        outputs.append(HeadOutput(head.predict(states), states))
    return outputs


class ChainLayer(Protocol):
    """What `Chains` takes of a layer; see `HeadLayer`."""

    self_attn: Any

    def attended(self, states: Tensor, embedded: Tensor | None) -> Tensor: ...

    def position_embeddings(
        self, attended: Tensor, position_ids: Tensor
    ) -> tuple[Tensor, Tensor]: ...

    def finish(self, states: Tensor, out: Tensor) -> Tensor: ...


class Chains:
    """Chains of drafts of a head with a layer, from several starts of each text.

    Step 0 of a chain is the entry at its start, among the true entries before it. Step s is an
    entry s places on, which sees the true entries up to the start and the chain's own after that.
    """

    def __init__(
        self, layer: ChainLayer, attended: Tensor, starts: Tensor, hides_first: bool = False
    ) -> None:
        """Compute K/V of the true entries.

        Args:
            attended: (b, T, W), of the true entries, as `HeadLayer.attended` gives it.
            starts: (b, m), the entries at which chains start.
            hides_first: see `HeadSettings`.
        """
        self.layer = layer
        self.starts = starts
        positions = torch.arange(attended.shape[1], device=attended.device)[None]
        self._keys, self._values = self._key_value(attended, positions)  # (b, G, T, d)
        self._before = positions[:, None] <= starts[..., None]  # (b, m, T)
        self._before_later = self._before  # of steps behind the first
        if hides_first:
            self._before_later = self._before & (positions > 0)
            # Entry 0 itself has nothing else to attend to.
            self._before = self._before_later | (starts[..., None] == 0) & (positions == 0)
        self._own: list[tuple[Tensor, Tensor]] = []

    def _split(self, projected: Tensor, norm: str = "") -> Tensor:
        """Return (b, heads, q, d) from (b, q, heads * d), normed where the attention does so."""
        b, q, _ = projected.shape
        split = projected.view(b, q, -1, self.layer.self_attn.head_dim).transpose(1, 2)
        if hasattr(self.layer.self_attn, norm):
            split = getattr(self.layer.self_attn, norm)(split)
        return split

    def _key_value(self, attended: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        attention = self.layer.self_attn
        keys = self._split(attention.k_proj(attended), "k_norm")
        cos, sin = self.layer.position_embeddings(attended, positions)
        keys, _ = apply_rotary_pos_emb(keys, keys, cos, sin)
        return keys, self._split(attention.v_proj(attended))

    def step(self, states: Tensor, embedded: Tensor | None, number: int) -> Tensor:
        """Return the own features (b, m, D) of the entries at step `number`, in order from 0.

        states, embedded: (b, m, D), of these entries.
        """
        attention = self.layer.self_attn
        attended = self.layer.attended(states, embedded)
        positions = self.starts + number
        cos, sin = self.layer.position_embeddings(attended, positions)
        queries = self._split(attention.q_proj(attended), "q_norm")
        queries, _ = apply_rotary_pos_emb(queries, queries, cos, sin)
        if number:
            self._own.append(self._key_value(attended, positions))
        b, heads, m, depth = queries.shape
        grouped = queries.view(b, self._keys.shape[1], -1, m, depth)  # (b, G, H / G, m, d)
        scores = [grouped @ self._keys[:, :, None].transpose(-1, -2)]  # (b, G, H / G, m, T)
        before = self._before_later if number else self._before
        scores[0] = scores[0].masked_fill(~before[:, None, None], -torch.inf)
        for keys, _ in self._own:
            scores.append((grouped * keys[:, :, None]).sum(-1, keepdim=True))
        weights = (torch.cat(scores, -1) * attention.scaling).softmax(-1)
        length = self._keys.shape[2]
        out = weights[..., :length] @ self._values[:, :, None]
        for i, (_, values) in enumerate(self._own):
            out = out + weights[..., length + i, None] * values[:, :, None]
        out = out.reshape(b, heads, m, depth).transpose(1, 2).reshape(b, m, -1)
        return self.layer.finish(states, attention.o_proj(out))
