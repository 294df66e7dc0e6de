"""Compute from nothing what a drafter that reads hidden states should be given, and should draft.

Contract: an `MtpModel` or a DFlash drafter, its target and texts go in; what each draft's query
should attend to comes out. Not known here: what a decoder did.

Entry p of MTP layer k is made of token p + k + 1 and, in layer 0, of the target's last hidden state
at p, behind it of what layer k - 1 gave at p. Drafts beyond the number of layers come from the last
layer on its own output. DFlash attends to the hidden states of all tokens before the pending one,
and in both directions to a block: the pending token, and masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_layers import MtpModel

from specviz.checks.watch.prints import sketch
from specviz.engine.heads.dflash import plain_embedding
from specviz.engine.heads.mtp import rotation
from specviz.engine.models.compat import FULL, SLIDING, read_setting
from specviz.record.schema import Array


@dataclass
class Due:
    """What the query of one draft should attend to: n entries, itself among them.

    Attributes:
        depth: of the MTP layer; 0 for DFlash.
        tokens: (n,), -1 where an entry is made of no token.
        positions: (n,).
        hidden: (n, size), sketches of hidden states; NaN where an entry is made of none.
        least: the first entry that no window may hide.
        query: which entry is the query's own.
        best: the token that it should draft.
        is_block: whether it is of a block of DFlash.
    """

    depth: int
    tokens: Array
    positions: Array
    hidden: Tensor
    least: int
    query: int
    best: int
    is_block: bool = False


class Truth:
    """What a drafter should do; see `truth_of`.

    Args:
        drafter, target: the models.
        block: the length of DFlash's block.
        length: no position is as large.
    """

    def __init__(
        self, drafter: PreTrainedModel, target: PreTrainedModel, block: int, length: int
    ) -> None:
        self._drafter, self._target, self._block = drafter, target, block
        self._length = length
        self._hidden: dict[tuple[int, ...], Tensor] = {}
        self._embed = plain_embedding(target)

    def embeddings(self, ids: Sequence[int]) -> Tensor:
        """Return the embeddings (n, size) of tokens, as drafters are given them."""
        found: Tensor = self._embed(torch.tensor(ids, device=self._target.device))
        return found

    def hidden(self, tokens: Sequence[int]) -> Tensor:
        """Return the target's hidden states (n, size) that the drafter reads."""
        key = tuple(tokens)
        if key not in self._hidden:
            ids = torch.tensor([key], device=self._target.device)
            found = self._target(ids, use_cache=False, output_hidden_states=True).hidden_states
            layers = getattr(self._drafter.config, "target_layer_ids", None)
            chosen = found[-1:] if layers is None else [found[i + 1] for i in layers]
            self._hidden[key] = torch.cat(list(chosen), -1)[0]
        return self._hidden[key]

    def positions(self, applied: Tensor, depth: int) -> Tensor:
        """Return the positions (b, q) of rotations (b, q, size); -1 for none."""
        raise NotImplementedError

    def of(self, text: Sequence[int], pending: int, drafts: Sequence[int]) -> list[Due]:
        """Return what is due for each draft behind a pending token, given the drafts before it."""
        raise NotImplementedError

    def choices(self, text: Sequence[int], pending: int, count: int) -> dict[int, int]:
        """Return the drafter's own choices by place, 0 for the first draft, up to `count`."""
        raise NotImplementedError


class MtpTruth(Truth):
    """What MTP layers should do."""

    def of(self, text: Sequence[int], pending: int, drafts: Sequence[int]) -> list[Due]:
        return self._chain(text, pending, list(drafts), len(drafts))

    def choices(self, text: Sequence[int], pending: int, count: int) -> dict[int, int]:
        return {i: due.best for i, due in enumerate(self._chain(text, pending, [], count + 1))}

    def _chain(
        self, text: Sequence[int], pending: int, drafts: Sequence[int], count: int
    ) -> list[Due]:
        ahead = list(text[: pending + 1])
        given = self.hidden(text)[:pending]
        last = len(self._drafter.layers) - 1
        found = []
        for place in range(count):
            depth = min(place, last)
            n = len(given)
            positions = depth + 1 + torch.arange(n, device=given.device)
            tokens = ahead[depth + 1 : depth + 1 + n]
            left = self._layer(depth, self.embeddings(tokens)[None], given[None], positions[None])
            best = int(self._drafter._project_to_logits(left[:, -1:]).argmax())
            found.append(
                Due(
                    depth, np.array(tokens), positions.cpu().numpy(), sketch(given),
                    self._least(depth, n), n - 1, best,
                )
            )  # fmt: skip
            ahead.append(drafts[place] if place < len(drafts) else best)
            given = left[0] if place < last else torch.cat([given, left[0, -1:]])
        return found

    def _layer(self, depth: int, embeds: Tensor, hidden: Tensor, positions: Tensor) -> Tensor:
        """Run a layer over all entries (1, n, size) of a row."""
        model = self._drafter
        masks = model.create_masks_for_mtp_layer(depth, embeds, None, positions)
        angles = rotation(model, embeds, positions, depth)
        left: Tensor = model.layers[depth](
            embeds, hidden, position_embeddings=angles, position_ids=positions,
            past_key_values=None, **masks,
        )  # fmt: skip
        return model.shared_post_norm(left) if model.use_shared_post_norm else left

    def positions(self, applied: Tensor, depth: int) -> Tensor:
        every = torch.arange(self._length, device=applied.device)[None]
        angles = rotation(self._drafter, applied[:1, :1], every, depth)
        assert angles is not None, "a rotation was applied"
        table = torch.cat(angles, -1)[0]
        off, found = torch.cdist(applied.double(), table.double()).min(-1)
        return torch.where(off < 1e-2, found, -1)

    def _least(self, depth: int, n: int) -> int:
        types = read_setting(self._drafter.config, "layer_types")
        if not types or types[depth] != SLIDING:
            return 0
        return max(n - int(self._drafter.config.sliding_window), 0)


class DFlashTruth(Truth):
    """What a DFlash drafter should do."""

    def of(self, text: Sequence[int], pending: int, drafts: Sequence[int]) -> list[Due]:
        block = [text[pending], *[self._drafter.config.mask_token_id] * (self._block - 1)]
        hidden = sketch(self.hidden(text)[:pending])
        blank = torch.full((self._block, hidden.shape[1]), torch.nan, dtype=hidden.dtype)
        tokens = np.array([-1] * pending + block)
        width = self._drafter.config.sliding_window
        is_narrow = SLIDING in self._drafter.config.layer_types
        least = max(pending + self._block - width, 0) if is_narrow else 0
        bests = self.choices(text, pending, len(drafts))
        positions = np.arange(len(tokens))
        return [
            Due(
                0, tokens, positions, torch.cat([hidden, blank]), least, pending + 1 + i, bests[i],
                is_block=True,
            )
            for i in range(min(len(drafts), self._block - 1))
        ]  # fmt: skip

    def choices(self, text: Sequence[int], pending: int, count: int) -> dict[int, int]:
        ids = [text[pending], *[self._drafter.config.mask_token_id] * (self._block - 1)]
        hidden = self.hidden(text)[None, :pending]
        positions = torch.arange(pending + self._block, device=hidden.device)
        far = (positions[pending:, None] - positions).abs() > self._drafter.config.sliding_window
        narrow = torch.zeros(far.shape, dtype=hidden.dtype, device=hidden.device)
        narrow = narrow.masked_fill(far, torch.finfo(hidden.dtype).min)[None, None]
        left = self._drafter(
            noise_embeds=self.embeddings(ids)[None],
            context_hidden_states=hidden,
            position_ids=positions[None],
            attention_mask={FULL: None, SLIDING: narrow if far.any() else None},
        ).last_hidden_state[0]
        best = self._target.get_output_embeddings()(left).argmax(-1).tolist()
        return {place - 1: token for place, token in enumerate(best)}


def truth_of(drafter: PreTrainedModel, target: PreTrainedModel, block: int, length: int) -> Truth:
    """Return what a drafter should do; the arguments are those of `Truth`."""
    kind = MtpTruth if isinstance(drafter, MtpModel) else DFlashTruth
    return kind(drafter, target, block, length)
