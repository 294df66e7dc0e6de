"""The size of a model: parameters, bytes, K/V per slot, and the arithmetic of one forward.

A shape is read from a configuration as a plain dict, or measured on a model of any class. Not known
here: weights, running models.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from specviz.util.validate import is_int, is_one_of, short

MODEL_TYPES = ("llama", "qwen2", "qwen3", "glm4", "gpt2")
ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
Numbers = float | NDArray[Any]  # one number or an array of them: the formulas take both

# What the configurations of published pairs say about size, by name, target and draft. Sources:
# config.json of Qwen/Qwen3-8B, Qwen/Qwen3-0.6B, lmsys/vicuna-7b-v1.3, double7/vicuna-68m and
# zai-org/GLM-4-9B-0414. The one of jukofyork/GLM-4.5-DRAFT-0.6B-v3.0 was not available: its entry
# follows its model card, a Qwen2.5-0.5B with GLM-4's vocabulary and an untied output embedding.
SHAPES: dict[str, dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("pairs.json").read_text(encoding="utf-8")
)


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

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ModelShape":
        """Return the shape of a configuration dict: llama, qwen2, qwen3, glm4 or gpt2.

        Raises:
            ValueError: an unknown model_type, a size is missing or not an int >= 1, or kv_heads
                does not divide heads.
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
        biases = 0
        if self.qkv_bias:
            biases += (self.heads + 2 * self.kv_heads) * self.head_dim
        if self.out_bias:
            biases += self.hidden
        if self.mlp_bias:
            biases += (2 if self.gated else 1) * self.intermediate + self.hidden
        norm = self.hidden * (2 if self.norm_bias else 1)
        layer = self.matrix_parameters + biases + self.norms * norm
        if self.head_norms:
            layer += 2 * self.head_dim
        return self.layers * layer + norm + self._all_embeddings

    @property
    def _all_embeddings(self) -> int:
        """Parameters of the input, output and position embeddings."""
        tables = 1 if self.tied else 2
        return tables * self.embedding_parameters + self.positions * self.hidden

    def weight_bytes(self, dtype: str) -> int:
        """Return the bytes of all parameters."""
        return self.parameters * ITEMSIZE[dtype]

    def kv_bytes_per_slot(self, dtype: str) -> int:
        """Return the bytes of K and V in one slot of one row, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * ITEMSIZE[dtype]

    def row_bytes(self, num_draft_tokens: int) -> int:
        """Return the bytes of one row's states in a run of K; 0 where layers keep K/V alone."""
        return 0

    def state_traffic(self, rows: Numbers, tokens: Numbers, *, logits: bool) -> Numbers:
        """Return the bytes of states that a forward reads and writes."""
        return 0

    def read_bytes(
        self, dtype: str, rows: Numbers, tokens: Numbers, *, logits: bool = True
    ) -> Numbers:
        """Return the bytes of weights that one forward over `rows` x `tokens` tokens must read.

        It reads all layers once, the tokens' own embeddings, and with `logits` the output
        embedding.
        """
        count: Numbers = self.parameters - self._all_embeddings
        if logits:
            count += self.embedding_parameters
        tables = 2 if self.positions else 1  # token and position embeddings
        count = count + rows * tokens * self.hidden * tables
        return count * ITEMSIZE[dtype]

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
        layer = self.fused + self.norms + 5
        if self.head_norms:
            layer += 2
        if not self.positions:
            layer += 1  # rotary embedding
        return self.layers * layer + 2 + logits


@dataclass(frozen=True)
class HeadShape(ModelShape):
    """The sizes of a head, which drafts from the hidden states of its target, with its one layer.

    Attributes:
        own_parameters: all of the head's own. The target's embedding and LM head are not among
            them.
        read: how many values of the target's hidden states it reads of a token.
        features: how many values of them it keeps of each committed token.
        entry: how many values its attention reads of a token: its feature, and the embedding where
            that counts.
        attends: whether it keeps K/V.
    """

    own_parameters: int = 1
    read: int = 1
    features: int = 1
    entry: int = 1
    attends: bool = True

    @property
    def parameters(self) -> int:
        return self.own_parameters

    def kv_bytes_per_slot(self, dtype: str) -> int:
        return super().kv_bytes_per_slot(dtype) if self.attends else 0


@dataclass(frozen=True)
class MeasuredShape(ModelShape):
    """Sizes of a model of any class, as measured on it, in the dtype in which it was measured.

    Of the sizes of a `ModelShape`, heads, kv_heads and head_dim are those of the largest layer of
    K/V, and intermediate is not used.

    Attributes:
        own_parameters: all of the model's, tied ones once.
        kv_values: numbers of K/V, an indexer's keys among them, in one slot of one row. Only
            layers that attend have any, and all of them keep full slabs.
        state_bytes: one state of one row, over all layers.
        kept_states: states that a row keeps however many tokens it drafts, as a number of bytes.
        column_bytes: states that a row keeps for each token that it drafts.
        largest_state: the largest layer's share of a row's states.
        operations: floating-point operations of one token, without attention and LM head.
        kernels: modules with weights; each needs a kernel at least.
        fixed_work, column_work, row_work, token_work, slot_work, pair_work: bytes that a forward
            needs for a while: in any case, for each token of the longest row (layers of state read
            prompts row by row), for each row, for each of a row's tokens, for each slot that a row
            attends to, and for each token and slot.
    """

    own_parameters: int = 0
    kv_values: int = 0
    state_bytes: int = 0
    kept_states: int = 0
    column_bytes: int = 0
    largest_state: float = 0.0
    operations: int = 0
    kernels: int = 0
    fixed_work: int = 0
    column_work: int = 0
    row_work: int = 0
    token_work: int = 0
    slot_work: int = 0
    pair_work: int = 0

    @property
    def parameters(self) -> int:
        return self.own_parameters

    def kv_bytes_per_slot(self, dtype: str) -> int:
        return self.kv_values * ITEMSIZE[dtype]

    def row_bytes(self, num_draft_tokens: int) -> int:
        return self.kept_states + num_draft_tokens * self.column_bytes

    def state_traffic(self, rows: Numbers, tokens: Numbers, *, logits: bool) -> Numbers:
        # It reads one state a row. It keeps one for each token, and of prompts the last two.
        written = tokens if logits else 2
        return rows * (1 + written) * self.state_bytes

    def flops(
        self, rows: Numbers, tokens: Numbers, slots: Numbers, *, logits: bool = True
    ) -> Numbers:
        own = self.operations + (2 * self.embedding_parameters if logits else 0)
        attended = 2 * self.kv_values * (self.heads // self.kv_heads) * slots
        return rows * tokens * (own + attended)

    def launches(self, *, logits: bool = True) -> int:
        return self.kernels + logits


def named_pair(name: str) -> tuple[ModelShape, ModelShape]:
    """Return (target, draft) of `SHAPES[name]`. Raise ValueError for an unknown name."""
    if not is_one_of(name, SHAPES):
        raise ValueError(
            f"shapes must be one of {', '.join(SHAPES)}, got {short(name)}; choose one of them"
        )
    pair = SHAPES[name]
    return ModelShape.from_config(pair["target"]), ModelShape.from_config(pair["draft"])


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ModelShape` for a configuration; see `ModelShape.from_config`."""
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f"model_type must be one of {', '.join(MODEL_TYPES)}, got {short(model_type)}; choose a"
            " model of one of these types"
        )
    try:
        sizes = _read_gpt2(config) if model_type == "gpt2" else _read_llama(config)
    except KeyError as missing:
        raise ValueError(
            f"config must have {missing.args[0]!r}, which is missing; pass a complete configuration"
            f" of model_type={model_type!r}"
        ) from None
    except (TypeError, ZeroDivisionError):
        raise ValueError(
            f"config of model_type={model_type!r} must hold sizes that are ints >= 1, got "
            f"{short(config)}; correct it"
        ) from None
    for name, size in sizes.items():
        if not isinstance(size, bool) and (not is_int(size) or size < 1):
            raise ValueError(f"{name} must be an int >= 1, got {short(size)}; correct the config")
    if sizes["heads"] % sizes["kv_heads"]:
        raise ValueError(
            f"kv_heads must divide heads={sizes['heads']}, got {sizes['kv_heads']}; correct the"
            " config"
        )
    return sizes


def _read_llama(config: Mapping[str, Any]) -> dict[str, Any]:
    """Read the names that all types but GPT-2 share. The defaults are those of the classes."""
    model_type = config["model_type"]
    hidden = config["hidden_size"]
    heads = config["num_attention_heads"]
    attention_bias = bool(config.get("attention_bias", model_type == "glm4"))
    head_dim = config.get("head_dim", 128 if model_type in ("qwen3", "glm4") else None)
    sizes = {
        "layers": config["num_hidden_layers"],
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": head_dim or hidden // heads,
        "intermediate": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "tied": bool(config.get("tie_word_embeddings", False)),
        "qkv_bias": attention_bias or model_type == "qwen2",
        "out_bias": attention_bias and model_type in ("llama", "qwen3"),
        "mlp_bias": model_type == "llama" and bool(config.get("mlp_bias", False)),
        "head_norms": model_type == "qwen3",
    }
    if model_type == "glm4":
        # Four norms a layer; gate and up projection are one matrix.
        sizes |= {"norms": 4, "fused": 6}
    return sizes


def _read_gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    hidden = config["n_embd"]
    heads = config["n_head"]
    return {
        "layers": config["n_layer"],
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": hidden // heads,
        "intermediate": config.get("n_inner") or 4 * hidden,
        "vocabulary": config["vocab_size"],
        "positions": config["n_positions"],
        "tied": bool(config.get("tie_word_embeddings", True)),
        "gated": False,
        "fused": 4,
        "norm_bias": True,
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
    }
