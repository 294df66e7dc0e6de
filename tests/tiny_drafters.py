"""Tiny targets, and MTP layers and DFlash drafters that were trained on half of their texts.

So they are right often, and not always.
"""

from functools import cache
from typing import Any

import tiny_models
import torch
from torch.nn.functional import cross_entropy
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel, PreTrainedModel
from transformers.modeling_layers import MtpModel

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [15, 3, 8, 4], [*range(20, 35)], [9, 4, 4, 9, 12, 60, 3]]
NEW_TOKENS = 16
BLOCK = 5
MASK = 2
STEPS = 25


@cache
def target_of(family: str, layers: int) -> PreTrainedModel:
    """Return a target whose configuration says that it has so many MTP layers."""
    config = tiny_models.make_config(tiny_models.families()[family])
    target = tiny_models.build(family, config, "sdpa")
    target.generation_config.eos_token_id = None
    text = target.config.get_text_config()
    text.num_mtp_layers = layers
    for name in ("layer_types", "mlp_layer_types"):
        if getattr(text, name, None):
            setattr(text, f"mtp_{name}", [getattr(text, name)[-1]] * layers)
    return target.requires_grad_(False)


def written_by(target: PreTrainedModel, prompt: list[int], **options: Any) -> list[int]:
    """Return what the target's own `generate` writes."""
    ids = torch.tensor([prompt])
    text = target.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS,
        pad_token_id=0, **options,
    )  # fmt: skip
    return text[0, len(prompt) :].tolist()


@cache
def texts_of(family: str, layers: int) -> list[list[int]]:
    """Return the new tokens of the target alone."""
    return [written_by(target_of(family, layers), prompt) for prompt in PROMPTS]


@cache
def read(family: str, layers: int) -> list[tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
    """Return the ids (1, n) of each text, and the target's hidden states."""
    target = target_of(family, layers)
    found = []
    for prompt, text in zip(PROMPTS, texts_of(family, layers), strict=True):
        ids = torch.tensor([prompt + text])
        found.append((ids, target(ids, output_hidden_states=True).hidden_states))
    return found


@cache
def mtp_of(family: str, layers: int) -> MtpModel:
    """Return MTP layers of the target."""
    torch.manual_seed(1)
    model = MtpModel(target_of(family, layers), layers).float().eval()

    def loss() -> torch.Tensor:
        found = []
        for ids, hidden in read(family, layers)[::2]:
            given = hidden[-1]
            for depth, layer in enumerate(model.layers):
                given = given[:, : ids.shape[1] - depth - 1]
                positions = torch.arange(depth + 1, ids.shape[1])[None]
                embeds = model.embed_tokens(ids[:, depth + 1 :])
                given = layer(
                    embeds, given, position_ids=positions, attention_mask=None,
                    position_embeddings=model.rotary_emb(embeds, position_ids=positions),
                    past_key_values=None,
                )  # fmt: skip
                logits = model.shared_head(given[:, :-1])
                found.append(cross_entropy(logits[0], ids[0, depth + 2 :]))
        return torch.stack(found).mean()

    own = [each for layer in model.layers for each in layer.parameters()]
    for weights in own:
        if weights.ndim > 1:  # MtpModel does not initialise experts
            torch.nn.init.normal_(weights, std=0.2)
    return trained(model, own, loss)


@cache
def dflash_of(family: str, layers: int = 1) -> MuseGlimmerAssistantModel:
    """Return a DFlash drafter for the target."""
    torch.manual_seed(1)
    target = target_of(family, layers)
    config = MuseGlimmerAssistantConfig(
        hidden_size=target.config.hidden_size, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, block_size=BLOCK,
        mask_token_id=MASK, target_layer_ids=[0, 1], max_position_embeddings=256,
        initializer_range=0.2,
    )  # fmt: skip
    model = MuseGlimmerAssistantModel(config).eval()

    def loss() -> torch.Tensor:
        found = []
        for (ids, hidden), prompt in list(zip(read(family, layers), PROMPTS, strict=True))[::2]:
            anchors = torch.arange(len(prompt), ids.shape[1] - BLOCK)
            places = anchors[:, None] + torch.arange(BLOCK)
            noise = torch.full(places.shape, MASK)
            noise[:, 0] = ids[0, anchors]
            context = torch.cat(hidden[1:3], -1).expand(len(anchors), -1, -1)
            every = torch.arange(ids.shape[1]).expand(len(anchors), -1)
            seen = torch.cat([every < anchors[:, None], torch.ones_like(noise).bool()], 1)
            mask = seen[:, None, None].expand(-1, -1, BLOCK, -1)
            left = model(
                noise_embeds=target.get_input_embeddings()(noise), context_hidden_states=context,
                attention_mask=dict.fromkeys(("full_attention", "sliding_attention"), mask),
                position_ids=torch.cat([every, places], 1),
            ).last_hidden_state  # fmt: skip
            logits = target.get_output_embeddings()(left[:, 1:])
            found.append(cross_entropy(logits.flatten(0, 1), ids[0, places[:, 1:]].flatten()))
        return torch.stack(found).mean()

    return trained(model, list(model.parameters()), loss)


def trained(model: Any, parameters: list[torch.nn.Parameter], loss: Any) -> Any:
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    with torch.enable_grad():
        for parameter in parameters:
            parameter.requires_grad_()
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    return model.requires_grad_(False)
