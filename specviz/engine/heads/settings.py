"""What a draft head is made of: sizes, the target's layers that it reads, and its variants."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import LlamaConfig, PreTrainedModel, Qwen3Config

from specviz.engine.models.compat import read_setting
from specviz.util.validate import require_choice, require_int, short

HEADS = 5
# What each kind is, where nothing else is asked for.
DEFAULTS: dict[str, dict[str, Any]] = {
    "medusa": {"heads": HEADS, "depth": 3},
    "clover": {"heads": HEADS, "block": True, "gate": "cosine"},
    "eagle3": {},
    "mtp": {},
    "dflash": {"heads": HEADS},
}
KINDS = tuple(DEFAULTS)
# How the embedding of the token before enters a head's state; see `Gate`.
GATES = ("none", "cosine", "silu")
# In place of a layer's number: the output of the target's final norm, which its LM head reads.
LAST = -1


@dataclass(frozen=True)
class HeadSettings:
    """The settings of a head.

    Attributes:
        kind: one of KINDS.
        hidden_size: D, of the target and of the head.
        vocabulary_size: V, rows of the target's embedding.
        layers: the target's layers whose outputs the head reads, counted from 0; LAST for the
            output of the final norm.
        num_attention_heads, num_key_value_heads, intermediate_size: of the head's layer.
        max_position_embeddings, rope_theta, rms_norm_eps: of the head's layer.
        rope_scaling: how its positions are scaled, as transformers' configurations have it.
        head_dim: of its attention heads; 0 for hidden_size / num_attention_heads.
        heads: how many tokens it can draft; 0 if there is no limit.
        num_layers: how many layers a head of transformers' own classes has ("mtp", "dflash").
        mask_token_id: what stands for an unknown token in the block of a "dflash" head.
        block: whether a transformer layer over the features comes before the heads.
        gate: how the token before enters, one of GATES.
        draft_vocabulary_size: how many ids it can propose; 0 for all.
        depth: residual layers of each head of Medusa's kind.
        own_lm_heads: whether each head has an LM head of its own instead of the target's.
        hides_first: whether no later entry attends to entry 0, as in EAGLE's own code, which has no
            such entry.
        norm_before_residual: whether the residual stream begins with the norm of the feature, and
            not with the feature itself.
        qk_norm: whether queries and keys are normed, as in Qwen3.
        target: the fingerprint of the target that it was trained on; "" if there is none.

    Raises:
        ValueError: a setting cannot be used.
    """

    kind: str
    hidden_size: int
    vocabulary_size: int
    layers: tuple[int, ...]
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    max_position_embeddings: int = 1024
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    heads: int = 0
    block: bool = False
    gate: str = "none"
    draft_vocabulary_size: int = 0
    depth: int = 1
    own_lm_heads: bool = False
    hides_first: bool = False
    rope_scaling: dict[str, Any] | None = None
    head_dim: int = 0
    norm_before_residual: bool = False
    qk_norm: bool = False
    num_layers: int = 1
    mask_token_id: int = 0
    target: str = ""

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, KINDS)
        require_choice("gate", self.gate, GATES)
        object.__setattr__(self, "layers", tuple(self.layers))
        for name in ("hidden_size", "vocabulary_size", "num_attention_heads", "intermediate_size"):
            require_int(name, getattr(self, name))
        require_int("num_layers", self.num_layers)
        require_int("heads", self.heads, minimum=0)
        require_int("depth", self.depth)
        if (self.is_residual or self.kind == "dflash") and self.heads < 1:
            raise ValueError(
                f"heads must be an int >= 1 for kind={self.kind!r}, got {self.heads}; "
                "pass how many tokens it is to draft"
            )
        if not self.layers or not all(layer >= LAST for layer in self.layers):
            raise ValueError(
                f"layers must be the numbers of layers of the target, or {LAST} for the output "
                f"of its final norm, got {short(self.layers)}; pass for instance layers=(3, 7, 11)"
            )

    @property
    def is_residual(self) -> bool:
        """Whether the head is of the kind of Medusa's: one state, several small heads."""
        return self.kind in ("medusa", "clover")

    @property
    def has_cache(self) -> bool:
        """Whether the head attends to earlier entries, and so keeps K/V."""
        return not self.is_residual or self.block

    def layer_config(self) -> LlamaConfig | Qwen3Config:
        """Return the configuration of a layer of Llama or Qwen3 of these sizes."""
        rope = {"rope_type": "default", "rope_theta": self.rope_theta} | (self.rope_scaling or {})
        kind = Qwen3Config if self.qk_norm else LlamaConfig
        return kind(
            vocab_size=self.vocabulary_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=1,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            intermediate_size=self.intermediate_size,
            max_position_embeddings=self.max_position_embeddings,
            rms_norm_eps=self.rms_norm_eps,
            head_dim=self.head_dim or self.hidden_size // self.num_attention_heads,
            rope_parameters=rope,
        )


def settings_for(kind: str, target: PreTrainedModel, **changes: Any) -> HeadSettings:
    """Return the settings of a head of this kind and the target's sizes."""
    require_choice("kind", kind, KINDS)
    config = target.config.get_text_config()
    attention_heads = read_setting(config, "num_attention_heads") or 1
    size = config.hidden_size
    values = {
        "kind": kind,
        "hidden_size": size,
        "vocabulary_size": target.get_input_embeddings().weight.shape[0],
        "layers": fused_layers(target) if kind in ("eagle3", "dflash") else (LAST,),
        "num_attention_heads": attention_heads,
        "num_key_value_heads": read_setting(config, "num_key_value_heads") or attention_heads,
        "intermediate_size": read_setting(config, "intermediate_size") or 4 * size,
        "max_position_embeddings": read_setting(config, "max_position_embeddings") or 4096,
        **DEFAULTS[kind],
        **changes,
    }
    return HeadSettings(**values)


def fused_layers(target: PreTrainedModel) -> tuple[int, ...]:
    """Return the layers that EAGLE-3 and DFlash fuse: an early, the middle and a late one.

    A target of few layers has fewer of them.
    """
    count = target.config.get_text_config().num_hidden_layers
    if count == 1:
        return (LAST,)
    # As published: the inputs of layers 2, n / 2 and n - 3, which are outputs of those before.
    wanted = (1, count // 2 - 1, count - 4)
    return tuple(sorted({min(max(layer, 0), count - 2) for layer in wanted}))


def check_layers(layers: Sequence[int], target: PreTrainedModel) -> None:
    """Raise ValueError if the target has no output of such layers.

    The last layer's own output is not among what transformers returns, only its norm, LAST.
    """
    count = target.config.get_text_config().num_hidden_layers
    known = [LAST, *range(count - 1)]
    unknown = [layer for layer in layers if layer not in known]
    if unknown:
        raise ValueError(
            f"layers={short(tuple(layers))} names {short(unknown)}, but the target has {count} "
            f"layers; pass numbers from 0 to {count - 2}, or {LAST} for the final norm's output"
        )
