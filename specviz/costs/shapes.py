"""The size of a model: parameters, bytes, K/V per slot, and the arithmetic of one forward.

A shape is read from a configuration as a plain dict. Not known here: weights, running models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from numpy.typing import NDArray

from specviz.costs.checks import check_all_numbers
from specviz.costs.configs import read_config
from specviz.util.validate import is_one_of, require_bool, require_int, short

ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
Numbers = float | NDArray[Any]  # one number or an array of them: the formulas take both

_ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 10_000.0}
_QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "attention_bias": False,
    "max_position_embeddings": 40_960,
    "rms_norm_eps": 1e-6,
    "rope_parameters": _ROPE | {"rope_theta": 1_000_000.0},
}
_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 32_000,
    "max_position_embeddings": 2_048,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "rope_parameters": _ROPE,
}

# What the configurations of published pairs say about size. Sources: config.json of Qwen/Qwen3-8B,
# Qwen/Qwen3-0.6B, lmsys/vicuna-7b-v1.3, double7/vicuna-68m and zai-org/GLM-4-9B-0414. The one of
# jukofyork/GLM-4.5-DRAFT-0.6B-v3.0 was not available: its entry follows its model card, a
# Qwen2.5-0.5B with the vocabulary of GLM-4 and an untied output embedding.
SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "qwen3-8b/0.6b": {
        "target": _QWEN3
        | {
            "hidden_size": 4096,
            "intermediate_size": 12_288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "tie_word_embeddings": False,
        },
        "draft": _QWEN3
        | {
            "hidden_size": 1024,
            "intermediate_size": 3_072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "tie_word_embeddings": True,
        },
    },
    "vicuna-7b/68m": {
        "target": _LLAMA
        | {
            "hidden_size": 4096,
            "intermediate_size": 11_008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
        },
        "draft": _LLAMA
        | {
            "hidden_size": 768,
            "intermediate_size": 3_072,
            "num_hidden_layers": 2,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
        },
    },
    "glm4-9b/0.6b": {
        "target": {
            "model_type": "glm4",
            "vocab_size": 151_552,
            "hidden_size": 4096,
            "intermediate_size": 13_696,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "attention_bias": True,
            "tie_word_embeddings": False,
            "max_position_embeddings": 32_768,
            "rms_norm_eps": 1e-5,
            "rope_parameters": _ROPE | {"partial_rotary_factor": 0.5},
        },
        "draft": {
            "model_type": "qwen2",
            "vocab_size": 151_552,
            "hidden_size": 896,
            "intermediate_size": 4_864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "tie_word_embeddings": False,
            "max_position_embeddings": 32_768,
            "rms_norm_eps": 1e-6,
            "rope_parameters": _ROPE | {"rope_theta": 1_000_000.0},
        },
    },
}


def itemsize(dtype: str) -> int:
    """Return the bytes of one number. Raise ValueError for a dtype that models do not run in."""
    if not is_one_of(dtype, ITEMSIZE):
        raise ValueError(
            f"dtype must be one of {', '.join(ITEMSIZE)}, got {short(dtype)}; choose one of them"
        )
    return ITEMSIZE[dtype]


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder-only transformer that bytes and arithmetic follow from.

    Attributes:
        layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary: the usual sizes.
        positions: learned position embeddings; 0 with rotary ones.
        tied: whether the output embedding is the input embedding.
        gated: whether the MLP has a gate, so three matrices instead of two.
        fused: matrix products of one layer; fewer than seven where matrices are stored as one.
        norms: normalisations over the hidden size in each layer.
        norm_bias, qkv_bias, out_bias, mlp_bias: which of them have a bias.
        head_norms: whether queries and keys are normalised per head.

    Raises:
        ValueError: a size is not an int >= 1, or kv_heads does not divide heads.
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
                require_int(field.name, value, 0 if field.name == "positions" else 1)
            else:
                require_bool(field.name, value)
        if self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads must divide heads={short(self.heads)}, got {short(self.kv_heads)}; "
                "pass a divisor"
            )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ModelShape":
        """Return the shape of a configuration dict: llama, qwen2, qwen3, glm4 or gpt2.

        Raises:
            ValueError: an unknown model_type, or a size is missing or not an int >= 1.
        """
        return cls(**read_config(config))

    @property
    def matrix_parameters(self) -> int:
        """Parameters of one layer's matrices. Each token is multiplied by each of them once."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        mlp_matrices = 3 if self.gated else 2
        return attention + mlp_matrices * self.hidden * self.intermediate

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the table that token ids are looked up in."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters. Tied embeddings count once."""
        norm = self.hidden * (2 if self.norm_bias else 1)
        layer = self.matrix_parameters + self._bias_parameters + self.norms * norm
        if self.head_norms:
            layer += 2 * self.head_dim
        return self.layers * layer + norm + self._all_embeddings

    @property
    def _bias_parameters(self) -> int:
        """Biases of one layer's matrices."""
        count = 0
        if self.qkv_bias:
            count += (self.heads + 2 * self.kv_heads) * self.head_dim
        if self.out_bias:
            count += self.hidden
        if self.mlp_bias:
            count += (2 if self.gated else 1) * self.intermediate + self.hidden
        return count

    @property
    def _all_embeddings(self) -> int:
        """Parameters of the input, output and position embeddings."""
        tables = 1 if self.tied else 2
        return tables * self.embedding_parameters + self.positions * self.hidden

    def weight_bytes(self, dtype: str) -> int:
        """Return the bytes of all parameters."""
        return self.parameters * itemsize(dtype)

    def kv_bytes_per_slot(self, dtype: str) -> int:
        """Return the bytes of K and V in one slot of one row, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize(dtype)

    def read_bytes(
        self, dtype: str, rows: Numbers, tokens: Numbers, *, logits: bool = True
    ) -> Numbers:
        """Return the bytes of weights that one forward over `rows` x `tokens` tokens must read.

        It reads all layers once, the tokens' own embeddings, and with `logits` the output
        embedding.
        """
        check_all_numbers(rows=rows, tokens=tokens)
        require_bool("logits", logits)
        count: Numbers = self.parameters - self._all_embeddings
        if logits:
            count += self.embedding_parameters
        tables = 2 if self.positions else 1  # token and position embeddings
        count = count + rows * tokens * self.hidden * tables
        return count * itemsize(dtype)

    def flops(
        self, rows: Numbers, tokens: Numbers, slots: Numbers, *, logits: bool = True
    ) -> Numbers:
        """Return the floating-point operations of one forward.

        Counts 2 operations for each multiplication by a weight, and 4 for each attended value.
        Norms, biases, rotations and the softmax are not counted.

        Args:
            rows, tokens, slots: B rows of q tokens, each of which attends to T slots.
            logits: whether the output embedding is applied to every token.
        """
        check_all_numbers(rows=rows, tokens=tokens, slots=slots)
        require_bool("logits", logits)
        weights = self.layers * self.matrix_parameters
        if logits:
            weights += self.embedding_parameters
        attended = 2 * self.layers * self.heads * self.head_dim * slots
        return 2 * rows * tokens * (weights + attended)

    def launches(self, *, logits: bool = True) -> int:
        """Return the kernels of one forward, with one kernel for each operation.

        A layer has its matrices and norms, the rotation, K/V write, attention, activation and two
        sums. Unfused code launches several times as many. Code that fuses sums and norms launches
        fewer.
        """
        require_bool("logits", logits)
        layer = self.fused + self.norms + 5
        if self.head_norms:
            layer += 2
        if not self.positions:
            layer += 1  # rotary embedding
        return self.layers * layer + 2 + logits


def named_pair(name: str) -> tuple[ModelShape, ModelShape]:
    """Return (target, draft) of `SHAPES[name]`. Raise ValueError for an unknown name."""
    if not is_one_of(name, SHAPES):
        raise ValueError(
            f"shapes must be one of {', '.join(SHAPES)}, got {short(name)}; choose one of them"
        )
    pair = SHAPES[name]
    return ModelShape.from_config(pair["target"]), ModelShape.from_config(pair["draft"])
