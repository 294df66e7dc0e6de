"""A pair of models that is small enough to know all that it may write."""

import copy

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from specviz.engine.models.pair import Pair
from specviz.util.validate import require_int

MOST_TOKENS = 64
# Half precision has steps of 0.5 there, so that rounded logits show in what is drawn.
LOGITS_AROUND = 80.0
HIDDEN = 16


def tiny_pair(vocabulary_size: int = 6, seed: int = 0) -> Pair:
    """Return a target and a draft over a few tokens, which differ, for `sv.audit_sampling`.

    Both are Llamas of two layers with random weights in float32. No token ends a text.

    Args:
        vocabulary_size: 2 to 64.
        seed: of the weights, an int >= 0.

    Raises:
        ValueError: an argument cannot be used.
    """
    require_int("vocabulary_size", vocabulary_size, minimum=2, maximum=MOST_TOKENS)
    require_int("seed", seed, minimum=0, maximum=2**63 - 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        target = _random_model(int(vocabulary_size))
        other = _random_model(int(vocabulary_size))
    draft = copy.deepcopy(target)
    with torch.no_grad():
        for mine, theirs in zip(draft.parameters(), other.parameters(), strict=True):
            if mine.ndim > 1:
                mine += 0.5 * theirs
    return Pair(target, draft)


def _random_model(vocabulary_size: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocabulary_size,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,  # one layer's K/V would be the same for a token in any text
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        initializer_range=0.6,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        head = nn.Linear(HIDDEN, vocabulary_size)
        # Logits differ by about 1.
        nn.init.normal_(head.weight, std=HIDDEN**-0.5)
        nn.init.constant_(head.bias, LOGITS_AROUND)
    model.lm_head = head
    return model
