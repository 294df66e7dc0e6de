"""What a model's configuration says of its size: parameters, bytes, K/V per slot, arithmetic of a forward. And pairs known by name.

Reads configurations as plain dicts, as config.json holds them or `config.to_dict()` gives them. Knows no weights and runs no model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from numpy.typing import NDArray

from specviz.util.validate import require_bool, require_int

ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
Numbers = float | NDArray[Any]  # one number, or an array of them: formulas go over both

_ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 10_000.0}
_QWEN3: dict[str, Any] = {
    "model_type": "qwen3", "vocab_size": 151_936, "head_dim": 128, "num_key_value_heads": 8, "attention_bias": False,
    "max_position_embeddings": 40_960, "rms_norm_eps": 1e-6, "rope_parameters": _ROPE | {"rope_theta": 1_000_000.0},
}  # fmt: skip
_LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 32_000, "max_position_embeddings": 2_048, "rms_norm_eps": 1e-6, "attention_bias": False,
    "mlp_bias": False, "tie_word_embeddings": False, "rope_parameters": _ROPE,
}  # fmt: skip

# The configurations of published pairs, as far as they say something of size. Sources: config.json of Qwen/Qwen3-8B, Qwen/Qwen3-0.6B,
# lmsys/vicuna-7b-v1.3, double7/vicuna-68m and zai-org/GLM-4-9B-0414. jukofyork/GLM-4.5-DRAFT-0.6B-v3.0 was not to be had: it stands
# here as what its makers describe, a Qwen2.5-0.5B with the vocabulary of GLM-4 and an output embedding of its own.
SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "qwen3-8b/0.6b": {
        "target": _QWEN3
        | {"hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36, "num_attention_heads": 32}
        | {"tie_word_embeddings": False},
        "draft": _QWEN3
        | {"hidden_size": 1024, "intermediate_size": 3_072, "num_hidden_layers": 28, "num_attention_heads": 16}
        | {"tie_word_embeddings": True},
    },
    "vicuna-7b/68m": {
        "target": _LLAMA
        | {"hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32},
        "draft": _LLAMA
        | {"hidden_size": 768, "intermediate_size": 3_072, "num_hidden_layers": 2, "num_attention_heads": 12, "num_key_value_heads": 12},
    },
    "glm4-9b/0.6b": {
        "target": {
            "model_type": "glm4", "vocab_size": 151_552, "hidden_size": 4096, "intermediate_size": 13_696, "num_hidden_layers": 40,
            "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "attention_bias": True, "tie_word_embeddings": False,
            "max_position_embeddings": 32_768, "rms_norm_eps": 1e-5, "rope_parameters": _ROPE | {"partial_rotary_factor": 0.5},
        },
        "draft": {
            "model_type": "qwen2", "vocab_size": 151_552, "hidden_size": 896, "intermediate_size": 4_864, "num_hidden_layers": 24,
            "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": False, "max_position_embeddings": 32_768,
            "rms_norm_eps": 1e-6, "rope_parameters": _ROPE | {"rope_theta": 1_000_000.0},
        },
    },
}  # fmt: skip


def itemsize(dtype: str) -> int:
    """Bytes of one number. Raises ValueError for a dtype that models are not run in."""
    if dtype not in ITEMSIZE:
        raise ValueError(f"dtype={dtype!r} is unknown; choose one of {', '.join(ITEMSIZE)}")
    return ITEMSIZE[dtype]


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer, as far as size and arithmetic go.

    Attributes:
        layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary: as everybody counts them.
        positions: learned position embeddings; 0 with rotary ones.
        tied: whether the output embedding is the input embedding.
        gated: whether the MLP has a gate, so three matrices instead of two.
        fused: matrices that one layer multiplies by; fewer than seven where the model keeps some of them in one (for launches).
        norms: normalisations over the hidden size, a layer.
        norm_bias, qkv_bias, out_bias, mlp_bias, head_norms: what else has parameters; head_norms are those of queries and keys.

    Raises:
        ValueError: a size is no whole number of at least 1, or the heads cannot share the K/V heads evenly.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    positions: int = 0
    tied: bool = False
    gated: bool = True
    fused: int = 7
    norms: int = 2
    norm_bias: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_norms: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int:
                require_int(field.name, value, minimum=0 if field.name == "positions" else 1)
            else:
                require_bool(field.name, value)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads={self.kv_heads} do not divide heads={self.heads}; pass a number of K/V heads that does"
            )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ModelShape":
        """From a configuration as a dict, with `model_type` llama, qwen2, qwen3, glm4 or gpt2. What it leaves out is its class's default.

        Raises:
            ValueError: another model_type, or a size is missing or cannot be.
        """
        if not isinstance(config, Mapping):
            raise ValueError(
                f"config={type(config).__name__} is no dict; pass config.to_dict(), or what a config.json holds"
            )
        kind = config.get("model_type")
        if kind not in _READERS:
            raise ValueError(
                f"model_type={kind!r} is not known here; choose a model of type {', '.join(_READERS)}"
            )
        try:
            return cls(**_READERS[kind](config))
        except KeyError as missing:
            raise ValueError(
                f"config has no {missing.args[0]!r}; pass a complete configuration of model_type={kind!r}"
            ) from None
        except (TypeError, ZeroDivisionError):
            raise ValueError(
                f"config of model_type={kind!r} has a size that is no whole number of at least 1; correct it"
            ) from None

    @property
    def matrix_parameters(self) -> int:
        """What one layer's matrices hold: a token is multiplied by each once."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + (3 if self.gated else 2) * self.hidden * self.intermediate

    @property
    def embedding_parameters(self) -> int:
        """Of the table that token ids are looked up in."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All of them; tied embeddings count once."""
        bias = (
            self.qkv_bias * (self.heads + 2 * self.kv_heads) * self.head_dim
            + self.out_bias * self.hidden
        )
        bias += self.mlp_bias * ((2 if self.gated else 1) * self.intermediate + self.hidden)
        norm = self.hidden * (2 if self.norm_bias else 1)
        layer = (
            self.matrix_parameters + bias + self.norms * norm + self.head_norms * 2 * self.head_dim
        )
        embeddings = (
            self.embedding_parameters * (1 if self.tied else 2) + self.positions * self.hidden
        )
        return self.layers * layer + norm + embeddings

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of all parameters."""
        return self.parameters * itemsize(dtype)

    def kv_bytes_per_slot(self, dtype: str) -> int:
        """Bytes of K and V that one slot of one row holds, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize(dtype)

    def read_bytes(
        self, dtype: str, rows: Numbers, tokens: Numbers, *, logits: bool = True
    ) -> Numbers:
        """Bytes of weights that one forward over `rows` x `tokens` tokens has to read: all layers once, and the tokens' embeddings."""
        layers = (
            self.parameters
            - self.embedding_parameters * (1 if self.tied else 2)
            - self.positions * self.hidden
        )
        looked_up = rows * tokens * self.hidden * (2 if self.positions else 1)
        return (layers + logits * self.embedding_parameters + looked_up) * itemsize(dtype)

    def flops(
        self, rows: Numbers, tokens: Numbers, slots: Numbers, *, logits: bool = True
    ) -> Numbers:
        """Floating-point operations of one forward: 2 for each multiplication by a weight, 4 for each attended value.

        Args:
            rows, tokens, slots: b rows of q tokens, each of which attends to w slots.
            logits: whether the output embedding is applied, to every token.

        Not counted: norms, biases, rotations, softmax.
        """
        weights = self.layers * self.matrix_parameters + logits * self.embedding_parameters
        attended = 2 * self.layers * self.heads * self.head_dim * slots
        return 2 * rows * tokens * (weights + attended)

    def launches(self, *, logits: bool = True) -> int:
        """Kernels of one forward with one for each operation: matrices, norms, rotation, K/V write, attention, activation, two sums.

        Unfused code launches several times as many, one that fuses sums and norms fewer.
        """
        layer = self.fused + self.norms + 2 * self.head_norms + (0 if self.positions else 1) + 5
        return self.layers * layer + 2 + logits


def named_pair(name: str) -> tuple[ModelShape, ModelShape]:
    """(target, draft) of SHAPES[name]. Raises ValueError that lists the names."""
    if name not in SHAPES:
        raise ValueError(f"shapes={name!r} is unknown; choose one of {', '.join(SHAPES)}")
    return ModelShape.from_config(SHAPES[name]["target"]), ModelShape.from_config(
        SHAPES[name]["draft"]
    )


def _read_llama(config: Mapping[str, Any]) -> dict[str, Any]:
    """What all of these but GPT-2 name alike; defaults are those of LlamaConfig."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    bias = bool(config.get("attention_bias", False))
    return {
        "layers": config["num_hidden_layers"],
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or hidden // heads,
        "intermediate": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "tied": bool(config.get("tie_word_embeddings", False)),
        "qkv_bias": bias,
        "out_bias": bias,
        "mlp_bias": bool(config.get("mlp_bias", False)),
    }


def _read_qwen2(config: Mapping[str, Any]) -> dict[str, Any]:
    return _read_llama(config) | {"qkv_bias": True, "out_bias": False, "mlp_bias": False}


def _read_qwen3(config: Mapping[str, Any]) -> dict[str, Any]:
    return _read_llama({"head_dim": 128, **config}) | {"mlp_bias": False, "head_norms": True}


def _read_glm4(config: Mapping[str, Any]) -> dict[str, Any]:
    """Four norms a layer; gate and up projection are one matrix; no bias behind the attention."""
    read = _read_llama({"head_dim": 128, "attention_bias": True, **config})
    return read | {"out_bias": False, "mlp_bias": False, "norms": 4, "fused": 6}


def _read_gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    hidden, heads = config["n_embd"], config["n_head"]
    sizes = {
        "layers": config["n_layer"],
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": hidden // heads,
    }
    sizes |= {
        "intermediate": config.get("n_inner") or 4 * hidden,
        "vocabulary": config["vocab_size"],
        "positions": config["n_positions"],
    }
    biases = dict.fromkeys(("norm_bias", "qkv_bias", "out_bias", "mlp_bias"), True)
    return (
        sizes
        | biases
        | {"tied": bool(config.get("tie_word_embeddings", True)), "gated": False, "fused": 4}
    )


_READERS = {
    "llama": _read_llama,
    "qwen2": _read_qwen2,
    "qwen3": _read_qwen3,
    "glm4": _read_glm4,
    "gpt2": _read_gpt2,
}
