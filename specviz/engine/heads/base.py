"""What all draft heads have: the target's embedding and LM head, and the features that they read.

Contract: a head has no embedding of its own. It is attached to a target, whose embedding and LM
head it uses and never changes. Not known here: rows, caches and the loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedModel

from specviz.engine.heads.settings import LAST, HeadSettings


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

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__(settings.layer_config())
        self.settings = settings
        self.training_s: float | None = None
        self._target: tuple[nn.Module, nn.Module] | None = None
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
    def target_embedding(self) -> nn.Module:
        assert self._target is not None, "a head is attached to its target before it runs"
        return self._target[0]

    @property
    def target_lm_head(self) -> nn.Module:
        assert self._target is not None, "a head is attached to its target before it runs"
        return self._target[1]

    def select(self, hidden_states: Sequence[Tensor]) -> Tensor:
        """Return the features (b, q, F): the outputs of the layers it reads, side by side.

        hidden_states: the target's, as transformers returns them: the embedding, the output of each
            layer but the last, and the output of the final norm.
        """
        device = hidden_states[0].device
        parts = []
        for layer in self.settings.layers:
            # Entry i is the input of layer i, so the output of layer i is entry i + 1.
            states = hidden_states[-1] if layer == LAST else hidden_states[layer + 1]
            parts.append(states.to(device))
        return torch.cat(parts, -1)

    @property
    def kept_width(self) -> int:
        """How wide what `fuse` returns is."""
        return self.settings.hidden_size

    def fuse(self, features: Tensor) -> Tensor:
        """Return what the head keeps of features (b, q, F): (b, q, D)."""
        return features

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the target's embeddings (..., D) of tokens (...)."""
        embedded: Tensor = self.target_embedding(tokens)
        return embedded

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
    def draft_ids(self) -> Tensor | None:
        """The target's ids (n,) that it can propose; None for all of them."""
        if not self.settings.draft_vocabulary_size:
            return None
        return torch.arange(self.d2t.shape[0], device=self.d2t.device) + self.d2t

    def rows_of_lm_head(self, tokens: Tensor) -> Tensor:
        """Return the rows (..., D) of the target's LM head for tokens (...)."""
        weight = self.target_lm_head.weight
        assert isinstance(weight, Tensor)
        return nn.functional.embedding(tokens, weight)


def identity_linear(size: int, noise: float) -> nn.Linear:
    """Return a linear layer that starts as the identity with a little noise."""
    layer = nn.Linear(size, size, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(size) + noise * torch.randn(size, size))
    return layer
