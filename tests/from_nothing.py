"""Drafts of MTP layers and of DFlash drafters, from their definition: without a cache, one text.

Contract: transformers' own modules compute them, in its own numbers: entry p of MTP layer k pairs
what was made of token p with token p + k + 1, at position p + k + 1. Not known here: batches.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine.heads import DFlashHead, DraftHead, MtpHead
from specviz.engine.models.compat import layer_types


def check_drafts(
    pair: sv.Pair, kind: str, prompts: Sequence[Sequence[int]], **options: Any
) -> list[list[int]]:
    """Decode, compare each round's drafts with those from nothing, and return the texts.

    Where a draft differs, it must be a near tie; what follows it is not compared.
    """
    texts: list[list[int]] = [[] for _ in prompts]
    compared = accepted = 0
    for event in sv.decode(pair, prompts, drafter=kind, **options):
        rows = event.state.batch.rows
        if event.phase == "accept":
            accepted += sum(row.accepted for row in rows)
        for row in rows:
            texts[row.request.index] = list(row.output)
        if event.phase != "draft" or not event.draft.tokens.shape[1]:
            continue
        for i, row in enumerate(rows):
            text = [*row.request.prompt, *row.output]
            if row.finished or len(text) < 2:  # one token alone has no hidden state before it
                continue
            found = event.draft.tokens[i].tolist()
            expected, logits = drafts(pair.heads[kind], pair.target, text, len(found))
            same = next((j for j in range(len(found)) if found[j] != expected[j]), len(found))
            difference = (event.draft.logits[i, : same + 1] - logits[: same + 1]).abs().max()
            assert difference < 1e-3 * logits.abs().max(), (text, found, expected)
            compared += 1
    assert compared > 10
    assert accepted > 0 or options["strategy"] == "rollback"  # which keeps what all rows accept
    return texts


@torch.inference_mode()
def drafts(
    head: DraftHead, target: PreTrainedModel, text: Sequence[int], count: int
) -> tuple[list[int], Tensor]:
    """Return the greedy drafts behind a text whose last token is pending, and logits (count, V)."""
    tokens = torch.tensor([list(text)])
    model = target.base_model
    states = model(tokens[:, :-1], output_hidden_states=True, use_cache=False).hidden_states
    if isinstance(head, MtpHead):
        return _of_mtp(head, tokens, states[-1], count)
    assert isinstance(head, DFlashHead)
    return _of_dflash(head, target, tokens, states, count)


def _of_mtp(head: MtpHead, tokens: Tensor, hidden: Tensor, count: int) -> tuple[list[int], Tensor]:
    mtp = head._mtp[0]
    tokens, found, logits = tokens[:, 1:], [], []
    positions = torch.arange(1, tokens.shape[1] + 1)[None]
    last = len(mtp.layers) - 1
    for step in range(count):
        out = _layer(mtp, min(step, last), tokens, hidden, positions)
        logits.append(mtp._project_to_logits(out[:, -1])[0].float())
        found.append(int(logits[-1].argmax()))
        new = torch.tensor([[found[-1]]])
        if step < last:
            # The next layer reads what this one made, each with the token after the one read here.
            hidden = out
            tokens = torch.cat([tokens[:, 1:], new], 1)
            positions = positions + 1
        else:
            # There is no further layer: the last one reads its own output.
            hidden = torch.cat([hidden, out[:, -1:]], 1)
            tokens = torch.cat([tokens, new], 1)
            positions = torch.cat([positions, positions[:, -1:] + 1], 1)
    return found, torch.stack(logits)


def _layer(mtp: Any, number: int, tokens: Tensor, hidden: Tensor, positions: Tensor) -> Tensor:
    """Run one MTP layer over all its entries, masked causally or by its window."""
    config = mtp.config
    embedded = mtp.embed_tokens(tokens)
    types = getattr(config, "layer_types", None)
    distance = torch.arange(tokens.shape[1])
    distance = distance[:, None] - distance
    seen = distance >= 0
    if (types[number] if types else min(layer_types(config))) == "sliding_attention":
        seen &= distance < config.sliding_window
    # Added to the scores, which every kind of attention understands.
    mask = torch.zeros(seen.shape, dtype=embedded.dtype).masked_fill(~seen, -torch.inf)
    rotary = None
    if mtp.rotary_emb is not None:
        more = {"layer_type": types[number]} if getattr(mtp, "has_per_layer_rope", False) else {}
        by_axis = positions
        if hasattr(mtp.rotary_emb, "mrope_section"):
            by_axis = positions.expand(3, -1, -1)
        rotary = mtp.rotary_emb(embedded, position_ids=by_axis, **more)
    out = mtp.layers[number](
        embedded,
        hidden,
        position_embeddings=rotary,
        attention_mask=mask[None, None],
        position_ids=positions,
        past_key_values=None,
    )
    return mtp.shared_post_norm(out) if mtp.use_shared_post_norm else out


def _of_dflash(
    head: DFlashHead,
    target: PreTrainedModel,
    tokens: Tensor,
    states: Sequence[Tensor],
    count: int,
) -> tuple[list[int], Tensor]:
    config = head.config
    context = torch.cat([states[i + 1] for i in config.target_layer_ids], -1)
    masks = torch.full((1, config.block_size - 1), config.mask_token_id)
    block = torch.cat([tokens[:, -1:], masks], 1)
    place = torch.arange(tokens.shape[1] + config.block_size - 1)
    distance = (place[tokens.shape[1] - 1 :, None] - place).abs()  # of the block's queries
    far = torch.zeros(distance.shape, dtype=context.dtype)
    far = far.masked_fill(distance > config.sliding_window, -torch.inf)[None, None]
    out = head.model(
        noise_embeds=head.target_embedding(block),
        context_hidden_states=context,
        position_ids=place[None],
        attention_mask={"full_attention": torch.zeros_like(far), "sliding_attention": far},
    ).last_hidden_state
    logits = target.get_output_embeddings()(out[0, 1 : count + 1]).float()
    return logits.argmax(-1).tolist(), logits
