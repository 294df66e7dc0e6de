"""What a draft head is made of: sizes, the target's layers that it reads, and its variants."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from transformers import LlamaConfig, Qwen3Config

from specviz.util.validate import require_choice, require_int, short

KINDS = ("medusa", "clover", "eagle3", "eagle1", "parallel")
# How the embedding of the token before enters a head's state; see `residual.Gate`.
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
    target: str = ""

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, KINDS)
        require_choice("gate", self.gate, GATES)
        object.__setattr__(self, "layers", tuple(self.layers))
        for name in ("hidden_size", "vocabulary_size", "num_attention_heads", "intermediate_size"):
            require_int(name, getattr(self, name))
        require_int("heads", self.heads, minimum=0)
        require_int("depth", self.depth)
        if self.is_residual and self.heads < 1:
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "HeadSettings":
        """Return the settings in `values`. Raise ValueError if one is missing or unknown."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"a head's file has unknown settings, {', '.join(unknown)}; "
                "use the version of specviz that wrote it"
            )
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(
                f"a head's file lacks settings ({error}); get the file again"
            ) from None

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
