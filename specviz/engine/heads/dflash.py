"""DFlash: a drafter that fills in a block of masks in one forward.

Entry j of the context belongs to token j and is made from the target's hidden states of that very
token, so it never depends on a draft. A block is the pending token and masks, all of which see each
other and the context before them. What they leave in the cache is replaced by the context's entries
once the tokens are known.

Sources: DFlash (arXiv 2602.06036); `MuseGlimmerAssistantModel` of transformers, whose layers these
are.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel, PreTrainedModel
from transformers.models.muse_glimmer_assistant.modeling_muse_glimmer_assistant import (
    apply_rotary_pos_emb,
)

from specviz.engine.heads.modules import DraftHead, HeadOutput
from specviz.engine.heads.settings import LAST, HeadSettings, settings_for

_NO_IDS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))  # the target has them
# How its authors call what transformers calls otherwise.
_RENAMED = {"fc.": "encoder.fc.", "hidden_norm.": "encoder.output_norm_enc."}


class DFlashHead(DraftHead):
    """A DFlash drafter, with the target's embedding and LM head.

    It has layers of its own number and size, as its configuration says.
    """

    config_class = MuseGlimmerAssistantConfig
    config: MuseGlimmerAssistantConfig
    lag: ClassVar[int] = 0

    def __init__(self, settings: HeadSettings, config: MuseGlimmerAssistantConfig) -> None:
        super().__init__(settings, config)
        self.model = MuseGlimmerAssistantModel(config)

    def attach(self, target: PreTrainedModel) -> None:
        self._target = (plain_embedding(target), target.get_output_embeddings())

    @property
    def block_columns(self) -> int:
        return self.settings.heads + 1  # masks, and where filling goes

    def fuse(self, features: Tensor) -> Tensor:
        fused: Tensor = self.model.encoder(features)
        return fused

    def block(self, pending: Tensor) -> Tensor:
        """Return the tokens (b, K + 1) of the blocks behind pending tokens (b, 1)."""
        masks = pending.new_full((len(pending), self.settings.heads), self.config.mask_token_id)
        return torch.cat([pending, masks], 1)

    def forward(
        self,
        input_ids: Tensor,
        features: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | dict[str, Tensor] | None = None,
        use_cache: bool = True,
        logits_to_keep: int = 1,
        **arguments: Any,
    ) -> HeadOutput:
        """Read entries of the context and a block; return logits for its masks.

        Args:
            input_ids: (b, K + 1), the block's tokens.
            features: (b, c, D), fused, of the context's new tokens.
            position_ids: (b, c + K + 1), of both.
            attention_mask: of the block's queries, or of each type of layer.
            arguments: the cache, as transformers' attention takes it.
        """
        hidden = self.target_embedding(input_ids).to(features.device)
        rotary = self.model.rotary_emb(hidden, position_ids)
        for layer, kind in zip(self.model.layers, self.config.layer_types, strict=True):
            mask = attention_mask[kind] if isinstance(attention_mask, dict) else attention_mask
            hidden = layer(
                hidden,
                context_hidden_states=features,
                position_embeddings=rotary,
                attention_mask=mask,
                **arguments,
            )
        hidden = self.model.norm(hidden)[:, 1:]
        return HeadOutput(self.to_logits(hidden), hidden)

    def read_context(self, features: Tensor, position_ids: Tensor, cache: Any) -> None:
        """Write K/V of context tokens to the cache, given their features (b, q, D)."""
        cos, sin = self.model.rotary_emb(features, position_ids)
        for number, layer in enumerate(self.model.layers):
            attention: Any = layer.self_attn
            by_head = (*features.shape[:2], -1, attention.head_dim)
            keys = attention.k_norm(attention.k_proj(features).view(by_head).transpose(1, 2))
            values = attention.v_proj(features).view(by_head).transpose(1, 2)
            cache.update(apply_rotary_pos_emb(keys, keys, cos, sin)[1], values, number)


def plain_embedding(target: PreTrainedModel) -> nn.Embedding:
    """Return the target's embedding without a norm of what it looks up, as drafters read it."""
    embedding = target.get_input_embeddings()
    if hasattr(embedding, "embed_norm"):
        embedding = copy.deepcopy(embedding)
        embedding.embed_norm = nn.Identity()
    return embedding


def dflash_config(settings: HeadSettings, layers: Sequence[int]) -> MuseGlimmerAssistantConfig:
    """Return the configuration of a new drafter, whose layers attend to all tokens."""
    return MuseGlimmerAssistantConfig(
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_attention_heads,
        num_key_value_heads=settings.num_key_value_heads,
        head_dim=settings.head_dim or settings.hidden_size // settings.num_attention_heads,
        rms_norm_eps=settings.rms_norm_eps,
        max_position_embeddings=settings.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": settings.rope_theta},
        layer_types=["full_attention"] * settings.num_layers,
        block_size=settings.heads + 1,
        mask_token_id=settings.mask_token_id,
        target_layer_ids=list(layers),
        **_NO_IDS,
    )


def read_config(
    config: Mapping[str, Any], weights: dict[str, Tensor]
) -> MuseGlimmerAssistantConfig | None:
    """Return the configuration of a drafter in a folder; None if it holds another kind of head.

    The weights get our modules' names, in place.
    """
    given = {**config, **(config.get("dflash_config") or {})}
    if "format" in config or not given.keys() >= {"block_size", "target_layer_ids"}:
        return None
    for name in list(weights):
        ours = name
        for begin, instead in _RENAMED.items():
            if name.startswith(begin):
                ours = instead + name.removeprefix(begin)
        weights[f"model.{ours}"] = weights.pop(name)
    others = ("model_type", "architectures", "dflash_config", "auto_map", "target")
    given = {name: each for name, each in given.items() if name not in others and each is not None}
    # Its authors' configuration is Qwen3's, whose layers attend to all tokens by default.
    full = ["full_attention"] * given["num_hidden_layers"]
    return MuseGlimmerAssistantConfig(**{"layer_types": full} | given | _NO_IDS)


def dflash_settings(
    config: MuseGlimmerAssistantConfig, target: PreTrainedModel, fingerprint: str = ""
) -> HeadSettings:
    """Return the settings of a drafter with this configuration.

    fingerprint: of the target that it was trained on; "" if that is not known.
    """
    last = target.config.get_text_config().num_hidden_layers - 1
    settings = settings_for(
        "dflash",
        target,
        hidden_size=config.hidden_size,
        layers=tuple(LAST if layer == last else layer for layer in config.target_layer_ids),
        heads=config.block_size - 1,
        num_layers=config.num_hidden_layers,
        mask_token_id=config.mask_token_id,
    )
    return replace(settings, target=fingerprint)
