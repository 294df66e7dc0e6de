"""Draft heads as modules: EAGLE-3's layer, and the several small heads of Medusa and Clover.

A head has no embedding of its own. It is attached to a target, whose embedding and LM head it uses
and never changes. A forward reads entries and finds earlier ones in a cache. Not known here: rows,
slabs, the loop and training.

Sources: EAGLE-3 (Li et al., arXiv 2503.01840); Medusa (Cai et al., arXiv 2401.10774); Clover (Xiao
et al., arXiv 2405.00263), with the gate of the code of Clover-2 ("cosine") or of Clover's figure
("silu").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, silu
from transformers import LlamaConfig, PreTrainedConfig, PreTrainedModel, Qwen3Config
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaMLP,
    LlamaRotaryEmbedding,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3MLP

from specviz.engine.heads.settings import LAST, HeadSettings

NOISE = 0.01  # of weights that start as the identity
EPSILON = 1e-12


@dataclass(frozen=True)
class HeadOutput:
    """What a head computed.

    Attributes:
        logits: (b, q, V), for the token after each entry.
        hidden: (b, q, D), the head's own features of the entries' tokens.
    """

    logits: Tensor
    hidden: Tensor


class DraftHead(PreTrainedModel):
    """A draft head. It is made by `build_head` and attached to its target.

    Attributes:
        training_s: seconds of its training, as its file says; None where that is not known.
    """

    config_class = LlamaConfig
    _supports_sdpa = True
    _supports_attention_backend = True
    main_input_name = "input_ids"

    # How many tokens before an entry's own the token lies whose feature it reads.
    lag: ClassVar[int] = 1

    def __init__(self, settings: HeadSettings, config: PreTrainedConfig | None = None) -> None:
        super().__init__(config or settings.layer_config())
        self.settings = settings
        self.training_s: float | None = None
        self._target: tuple[nn.Embedding, nn.Linear] | None = None
        size = settings.draft_vocabulary_size
        if size:
            # Names and meaning as in published checkpoints: draft id i is the target's id i + d2t.
            self.d2t: Tensor
            self.register_buffer("d2t", torch.zeros(size, dtype=torch.long))
            self.lm_head = nn.Linear(settings.hidden_size, size, bias=False)

    def attach(self, target: PreTrainedModel) -> None:
        """Use the embedding and the LM head of `target` from now on."""
        # A tuple, so that they are not submodules: they are neither saved nor trained.
        self._target = (target.get_input_embeddings(), target.get_output_embeddings())

    @property
    def target_embedding(self) -> nn.Embedding:
        assert self._target is not None, "a head is attached to its target before it runs"
        return self._target[0]

    @property
    def target_lm_head(self) -> nn.Linear:
        assert self._target is not None, "a head is attached to its target before it runs"
        return self._target[1]

    def forward(
        self,
        input_ids: Tensor,
        features: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | None = None,
        use_cache: bool = True,
        logits_to_keep: int = 1,
        **arguments: Any,
    ) -> HeadOutput:
        """Read entries; return logits and own features after the last `logits_to_keep`.

        Args:
            input_ids: (b, q), the entries' tokens.
            features: (b, q, D), fused, of the token before each of them.
            position_ids: (b, q).
            arguments: the cache, as transformers' attention takes it.
        """
        arguments["attention_mask"] = attention_mask
        hidden = self.read(input_ids, features, position_ids, **arguments)
        kept = hidden[:, hidden.shape[1] - logits_to_keep :]
        return HeadOutput(self.predict(kept), kept)

    def read(
        self, input_ids: Tensor, features: Tensor, position_ids: Tensor, **arguments: Any
    ) -> Tensor:
        """Return own features (b, q, D) of all entries. A head that keeps K/V has to write this."""
        raise NotImplementedError

    def predict(self, states: Tensor) -> Tensor:
        """Return logits (b, q, V) of own features (b, q, D)."""
        raise NotImplementedError

    def select(self, hidden_states: Sequence[Tensor]) -> Tensor:
        """Return the features (b, q, F) of the layers that it reads; see `select_layers`."""
        return select_layers(hidden_states, self.settings.layers)

    def fuse(self, features: Tensor) -> Tensor:
        """Return what the head keeps of features (b, q, F): (b, q, D)."""
        return features

    def to_logits(self, states: Tensor) -> Tensor:
        """Return logits (..., V) from states (..., D)."""
        ids = self.draft_ids
        if ids is None:
            logits: Tensor = self.target_lm_head(states)
            return logits
        own = self.lm_head(states)
        # The ids that it cannot propose have probability 0, for every way to choose and to judge.
        full = own.new_full((*own.shape[:-1], self.settings.vocabulary_size), -torch.inf)
        full[..., ids] = own
        return full

    @property
    def block_columns(self) -> int:
        """How many slots behind the pending token's it writes in every round, whatever K."""
        return 0

    @property
    def draft_ids(self) -> Tensor | None:
        """The target's ids (n,) that it can propose; None for all of them."""
        if not self.settings.draft_vocabulary_size:
            return None
        return torch.arange(self.d2t.shape[0], device=self.d2t.device) + self.d2t


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


def select_layers(hidden_states: Sequence[Tensor], layers: Sequence[int]) -> Tensor:
    """Return the outputs (b, q, F) of these layers, side by side.

    hidden_states: the target's, as transformers returns them: the embedding, the output of each
        layer but the last, and the output of the final norm.
    """
    device = hidden_states[0].device
    parts = []
    for layer in layers:
        # Entry i is the input of layer i, so the output of layer i is entry i + 1.
        states = hidden_states[-1] if layer == LAST else hidden_states[layer + 1]
        parts.append(states.to(device))
    return torch.cat(parts, -1)


def shifted(features: Tensor) -> Tensor:
    """Return the entries' features (b, T, D): of entry j that of token j - 1, zero for entry 0."""
    return torch.cat([torch.zeros_like(features[:, :1]), features[:, :-1]], 1)


def at(values: Tensor, places: Tensor) -> Tensor:
    """Return `values` (b, T) or (b, T, D) at `places` (b, m)."""
    if values.ndim == 2:
        return values.gather(1, places)
    return values.gather(1, places[..., None].expand(-1, -1, values.shape[-1]))


class EagleHead(DraftHead):
    """EAGLE-3: one layer over [token; feature], whose output stands in for the next feature.

    `fc` fuses several layers of the target, and the LM head reads a norm of the layer's output.
    """

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__(settings)
        size = settings.hidden_size
        self.fc = nn.Linear(len(settings.layers) * size, size, bias=False)
        self.midlayer = HeadLayer(
            self.config, with_tokens=True, norm_before_residual=settings.norm_before_residual
        )
        self.norm = nn.RMSNorm(size, eps=settings.rms_norm_eps)

    def fuse(self, features: Tensor) -> Tensor:
        fused: Tensor = self.fc(features)
        return fused

    def read(
        self, input_ids: Tensor, features: Tensor, position_ids: Tensor, **arguments: Any
    ) -> Tensor:
        embedded = self.target_embedding(input_ids)
        hidden: Tensor = self.midlayer(features, embedded, position_ids, **arguments)
        return hidden

    def predict(self, states: Tensor) -> Tensor:
        return self.to_logits(self.norm(states))


class Gate(nn.Module):
    """Lets a token into a state: state + weight(state, token) * V(token), by attention head.

    A softmax over this one key would be 1. The weight is the cosine of query and key, or a SiLU of
    their product.
    """

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__()
        size = settings.hidden_size
        self.kind = settings.gate
        self.heads = settings.num_attention_heads
        self.norm = nn.RMSNorm(size, eps=settings.rms_norm_eps)
        # Frequent tokens have long rows in a tied LM head, and would dominate.
        self.token_norm = nn.RMSNorm(size, eps=settings.rms_norm_eps)
        self.query = _identity(size)
        self.key = _identity(size)
        self.value = nn.Linear(size, size, bias=False)
        nn.init.zeros_(self.value.weight)

    def forward(self, states: Tensor, rows: Tensor) -> Tensor:
        """Return states (..., D), given the LM head's rows (..., D) of the tokens."""
        by_head = (*states.shape[:-1], self.heads, -1)
        token = self.token_norm(rows)
        query = self.query(self.norm(states)).view(by_head)
        key = self.key(token).view(by_head)
        product = (query * key).sum(-1, keepdim=True)
        if self.kind == "cosine":
            norms = query.square().sum(-1, keepdim=True) * key.square().sum(-1, keepdim=True)
            weight = product * (norms + EPSILON).rsqrt()  # 0 for a zero vector, in its gradient too
        else:
            weight = silu(product / query.shape[-1] ** 0.5)
        return states + (weight * self.value(token).view(by_head)).flatten(-2)


def _identity(size: int) -> nn.Linear:
    layer = nn.Linear(size, size, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(size) + NOISE * torch.randn(size, size))
    return layer


class ResidualHeads(DraftHead):
    """The heads of Medusa and Clover, of which head i proposes draft i, with the target's LM head.

    Medusa's heads see the target's state alone, so no head knows what the one before proposed.
    Clover adds a gate that lets the token before into the state, head after head, and a transformer
    layer over all states before the first head.

    Numbers differ from Medusa's paper by one: there the target's own LM head gives the first new
    token. Here that token is committed already, and head 0 proposes the one behind it.
    """

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__(settings)
        size = settings.hidden_size
        if settings.block:
            self.block = HeadLayer(self.config, with_tokens=False)
        if settings.gate != "none":
            self.gates = nn.ModuleList(Gate(settings) for _ in range(settings.heads))
        self.heads = nn.ModuleList(nn.Linear(size, size) for _ in range(settings.heads))
        # What comes behind a head's first residual layer.
        self.deeper = nn.ModuleList()
        for _ in range(settings.heads if settings.depth > 1 else 0):
            layers = [nn.Linear(size, size) for _ in range(settings.depth - 1)]
            self.deeper.append(nn.ModuleList(layers))
        if settings.own_lm_heads:
            self.lm_heads = nn.ModuleList(
                nn.Linear(size, settings.vocabulary_size, bias=False) for _ in range(settings.heads)
            )
        for layer in [*self.heads.modules(), *self.deeper.modules()]:
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

    def read(
        self, input_ids: Tensor, features: Tensor, position_ids: Tensor, **arguments: Any
    ) -> Tensor:
        hidden: Tensor = self.block(features, None, position_ids, **arguments)
        return hidden

    def predict(self, states: Tensor) -> Tensor:
        return states[..., :0]  # the logits are those of `step`

    def step(self, states: Tensor, tokens: Tensor, number: int) -> HeadOutput:
        """Return logits (..., V) of head `number`, and the states (..., D) for the next head.

        tokens: (...), the token before the one that is proposed.
        """
        if self.settings.gate != "none":
            rows = embedding(tokens, self.target_lm_head.weight)
            states = self.gates[number](states, rows)
        proposed = states + silu(self.heads[number](states))
        if len(self.deeper):
            layers = self.deeper[number]
            assert isinstance(layers, nn.ModuleList)
            for layer in layers:
                proposed = proposed + silu(layer(proposed))
        if self.settings.own_lm_heads:
            return HeadOutput(self.lm_heads[number](proposed), states)
        return HeadOutput(self.to_logits(proposed), states)
