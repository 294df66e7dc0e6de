"""The models of the embedded pair before their training."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specviz.zoo.data import VOCABULARY

POSITIONS = 1024


def build_model(
    layers: int, hidden_size: int, heads: int, kv_heads: int, mlp: int, seed: int = 0
) -> LlamaForCausalLM:
    """Return a Llama model with tied embeddings, random weights and the embedded vocabulary."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=mlp,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config)


def build_target() -> LlamaForCausalLM:
    """Return an untrained target.

    It is deep and narrow, so that a step costs several draft steps even where kernel launches make
    up the cost.
    """
    return build_model(layers=14, hidden_size=192, heads=4, kv_heads=2, mlp=512)


def build_draft() -> LlamaForCausalLM:
    """Return an untrained draft.

    Two layers are the fewest that can copy what followed an earlier occurrence of a token.
    """
    return build_model(layers=2, hidden_size=256, heads=4, kv_heads=2, mlp=704, seed=1)
