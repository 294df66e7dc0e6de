"""The transformer layer of a head, with K/V in a cache or along chains of drafts.

In decoding, a forward reads entries and finds earlier ones in a cache. In training, drafts from
many starts of one text are unrolled at once: `Chains`. Both use the same weights, and a test holds
their outputs together.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaMLP,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3MLP


class HeadLayer(nn.Module):
    """A layer of Llama or Qwen3 whose attention reads features, with or without their tokens.

    Names of parameters are those of published EAGLE-3 checkpoints.

    Args:
        with_tokens: whether attention reads [norm of embedding; norm of feature], 2 D wide.
        norm_before_residual: see `HeadSettings`.
    """

    def __init__(
        self,
        config: LlamaConfig | Qwen3Config,
        with_tokens: bool,
        norm_before_residual: bool = False,
    ) -> None:
        super().__init__()
        size = config.hidden_size
        is_qwen3 = isinstance(config, Qwen3Config)
        self.self_attn = (Qwen3Attention if is_qwen3 else LlamaAttention)(config, layer_idx=0)
        if with_tokens:
            for name in ("q_proj", "k_proj", "v_proj"):
                out = getattr(self.self_attn, name).out_features
                setattr(self.self_attn, name, nn.Linear(2 * size, out, bias=False))
            self.hidden_norm = nn.RMSNorm(size, eps=config.rms_norm_eps)
        self.mlp = (Qwen3MLP if is_qwen3 else LlamaMLP)(config)
        self.input_layernorm = nn.RMSNorm(size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(size, eps=config.rms_norm_eps)
        # Not persistent: it has no weights.
        self.rotary = LlamaRotaryEmbedding(config)
        self.with_tokens = with_tokens
        self.norm_before_residual = norm_before_residual

    def attended(self, states: Tensor, embedded: Tensor | None) -> Tensor:
        """Return what attention reads of entries with features `states` (..., D)."""
        if not self.with_tokens:
            normed: Tensor = self.input_layernorm(states)
            return normed
        assert embedded is not None
        return torch.cat([self.input_layernorm(embedded), self.hidden_norm(states)], -1)

    def position_embeddings(self, attended: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (b, q, d) of the rotary angles at positions (b, q)."""
        if self.rotary.rope_type != "default":
            cos, sin = self.rotary(attended, position_ids)
            return cos, sin
        # The same numbers in half of the module's time, which also serves scaled angles.
        angles = position_ids[..., None] * self.rotary.inv_freq.float()
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(attended.dtype), angles.sin().to(attended.dtype)

    def forward(
        self, states: Tensor, embedded: Tensor | None, position_ids: Tensor, **arguments: Any
    ) -> Tensor:
        """Return the entries' own features (b, q, D), given `states` (b, q, D).

        arguments: mask and cache, as transformers' attention takes them.
        """
        attended = self.attended(states, embedded)
        cos_sin = self.position_embeddings(attended, position_ids)
        out, _ = self.self_attn(attended, position_embeddings=cos_sin, **arguments)
        return self.finish(states, out)

    def finish(self, states: Tensor, out: Tensor) -> Tensor:
        """Return the layer's output from what it reads, `states`, and what attention gave."""
        states = (self.hidden_norm(states) if self.norm_before_residual else states) + out
        output: Tensor = states + self.mlp(self.post_attention_layernorm(states))
        return output


class Chains:
    """Chains of drafts from several starts of each text, for training.

    Step 0 of a chain is the entry at its start, among the true entries before it. Step s is an
    entry s places on, which sees the true entries up to the start and the chain's own after that.
    """

    def __init__(
        self, layer: HeadLayer, attended: Tensor, starts: Tensor, hides_first: bool = False
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


def shifted(features: Tensor) -> Tensor:
    """Return the entries' features (b, T, D): of entry j that of token j - 1, zero for entry 0."""
    return torch.cat([torch.zeros_like(features[:, :1]), features[:, :-1]], 1)


def at(values: Tensor, places: Tensor) -> Tensor:
    """Return `values` (b, T) or (b, T, D) at `places` (b, m)."""
    if values.ndim == 2:
        return values.gather(1, places)
    return values.gather(1, places[..., None].expand(-1, -1, values.shape[-1]))
