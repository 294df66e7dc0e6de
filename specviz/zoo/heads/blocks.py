"""Chains and blocks of heads that are made of transformers' own modules: MTP layers and DFlash."""

import torch
from torch import Tensor
from transformers.modeling_layers import MtpLayer

from specviz.engine.heads import DFlashHead, MtpHead
from specviz.engine.heads.modules import HeadOutput

# What the block of an MTP layer is made of, where a target's layers are like Llama's.
_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}


class MtpEntries:
    """Entries of an MTP layer for `Chains`, which takes what the layer's block reads as states.

    Raises:
        ValueError: the head has several layers, or its block is not like a layer of Llama.
    """

    def __init__(self, head: MtpHead) -> None:
        layer = head.layers[0]
        assert isinstance(layer, MtpLayer)
        parts = {name for name, _ in layer.mtp_block.named_children()}
        if len(head.layers) > 1 or parts != _PARTS:
            raise ValueError(
                f"an mtp head must be one layer like Llama's, got {len(head.layers)} of "
                f"{type(layer.mtp_block).__name__}; pass num_layers=1, or another kind of head"
            )
        self.layer = layer
        self.rotary = head._mtp[0].rotary_emb
        self.self_attn = layer.mtp_block.self_attn

    def joined(self, states: Tensor, embedded: Tensor) -> Tensor:
        """Return what the block reads (..., D) of states (..., D) and their tokens' embeddings."""
        normed = [self.layer.enorm(embedded), self.layer.hnorm(states)]
        projected: Tensor = self.layer.eh_proj(torch.cat(normed, -1))
        return projected

    def attended(self, states: Tensor, embedded: Tensor | None) -> Tensor:
        normed: Tensor = self.layer.mtp_block.input_layernorm(states)
        return normed

    def position_embeddings(self, attended: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.rotary(attended, position_ids)
        return cos, sin

    def finish(self, states: Tensor, out: Tensor) -> Tensor:
        block = self.layer.mtp_block
        states = states + out
        states = states + block.mlp(block.post_attention_layernorm(states))
        output: Tensor = self.layer.post_norm(states)
        return output


def blocks(head: DFlashHead, tokens: Tensor, features: Tensor, starts: Tensor) -> HeadOutput:
    """Return logits (b, m, K, V) and states (b, m, K, D) of masks, of blocks from all starts.

    Args:
        tokens: (b, T).
        features: (b, T, F), the target's, as `select` gives them.
        starts: (b, m), the pending tokens' places, from 1 on.
    """
    b, m = starts.shape
    length = tokens.shape[1]
    noise = head.block(tokens.gather(1, starts).view(-1, 1))  # (b * m, K + 1)
    size = noise.shape[1]
    own = starts[..., None] + torch.arange(size, device=starts.device)  # (b, m, K + 1)
    context = torch.arange(length, device=starts.device)
    # All places of a block see the context before its start, and each other.
    sees = (context < starts[..., None]).repeat_interleave(size, 1)
    block = torch.arange(m, device=starts.device).repeat_interleave(size)
    together = (block[:, None] == block).expand(b, -1, -1)
    hidden = head.model(
        noise_embeds=head.target_embedding(noise).view(b, m * size, -1),
        context_hidden_states=features,
        attention_mask={"full_attention": torch.cat([sees, together], -1)[:, None]},
        position_ids=torch.cat([context.expand(b, -1), own.flatten(1)], 1),
        use_cache=False,
    ).last_hidden_state
    hidden = hidden.view(b, m, size, -1)[:, :, 1:]
    return HeadOutput(head.to_logits(hidden), hidden)
