"""Heads that are one transformer layer over tokens and features: EAGLE-3, EAGLE-1, parallel.

A chain feeds the head with its own output in place of the features that are not known yet. The
parallel head reads mask entries there instead, so that all drafts come from one forward.

Sources: EAGLE (Li et al., arXiv 2401.15077), EAGLE-3 (Li et al., arXiv 2503.01840), parallel
drafting (PARD, An et al., arXiv 2504.18583; P-EAGLE, arXiv 2602.01469).
"""

from typing import Any

import torch
from torch import Tensor, nn

from specviz.engine.heads.base import DraftHead, HeadOutput
from specviz.engine.heads.layer import Chains, HeadLayer, at, shifted
from specviz.engine.heads.settings import HeadSettings


class EagleHead(DraftHead):
    """One layer over [token; feature], whose output stands in for the next feature.

    EAGLE-3 fuses several layers of the target by `fc`, and its LM head reads a norm of the layer's
    output. EAGLE-1 mixes the embedding and the target's last features by `fc`, and predicts such a
    feature, which the target's LM head reads as it is.
    """

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__(settings)
        size = settings.hidden_size
        self.mixes = settings.kind == "eagle1"
        width = 2 * size if self.mixes else len(settings.layers) * size
        self.fc = nn.Linear(width, size, bias=False)
        self.midlayer = HeadLayer(
            self.config,
            with_tokens=not self.mixes,
            norm_before_residual=settings.norm_before_residual,
        )
        if not self.mixes:
            self.norm = nn.RMSNorm(size, eps=settings.rms_norm_eps)
        if settings.kind == "parallel":
            # The token and the feature of an entry that is not known yet.
            self.mask_embedding = nn.Parameter(torch.zeros(size))
            self.mask_feature = nn.Parameter(0.02 * torch.randn(size))

    @property
    def is_parallel(self) -> bool:
        return self.settings.kind == "parallel"

    def fuse(self, features: Tensor) -> Tensor:
        if self.mixes:
            return features
        fused: Tensor = self.fc(features)
        return fused

    def _entries(self, embedded: Tensor, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what the layer reads of entries: states, and embeddings where it wants them."""
        if self.mixes:
            return self.fc(torch.cat([embedded, features], -1)), None
        return features, embedded

    def _to_logits(self, hidden: Tensor) -> Tensor:
        return self.to_logits(hidden if self.mixes else self.norm(hidden))

    def forward(
        self,
        input_ids: Tensor,
        features: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = True,
        logits_to_keep: int = 1,
        masked: Tensor | None = None,
        **others: Any,
    ) -> HeadOutput:
        """Read entries and return logits and own features after the last `logits_to_keep`.

        Args:
            input_ids: (b, q), the entries' tokens.
            features: (b, q, D), fused, of the token before each of them.
            masked: bool (q,), which entries are mask entries; their token and feature are ignored.
        """
        embedded = self.embed(input_ids)
        if masked is not None:
            embedded = torch.where(masked[:, None], self.mask_embedding, embedded)
            features = torch.where(masked[:, None], self.mask_feature, features)
        states, embedded_too = self._entries(embedded, features)
        hidden = self.midlayer(
            states,
            embedded_too,
            position_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            **others,
        )
        kept = hidden[:, hidden.shape[1] - logits_to_keep :]
        return HeadOutput(self._to_logits(kept), kept)

    def unroll(
        self, tokens: Tensor, features: Tensor, starts: Tensor, steps: int
    ) -> list[HeadOutput]:
        """Return logits and own features, (b, m, ...) each, at each step of chains.

        Step s of a chain reads token start + s, which is given, and its own feature of the token
        before. It predicts token start + s + 1.

        Args:
            tokens: (b, T).
            features: (b, T, F), the target's, as `select` gives them.
            starts: (b, m), each with start + steps <= T.
        """
        fused = shifted(self.fuse(features))
        embedded = self.embed(tokens)
        states, embedded_too = self._entries(embedded, fused)
        attended = self.midlayer.attended(states, embedded_too)
        chains = Chains(self.midlayer, attended, starts, self.settings.hides_first)
        outputs = []
        feature = at(fused, starts)
        for step in range(steps):
            read = at(embedded, starts + step)
            if step and self.is_parallel:
                read = self.mask_embedding.expand_as(read)
                feature = self.mask_feature.expand_as(read)
            states, embedded_too = self._entries(read, feature)
            feature = chains.step(states, embedded_too, step)
            outputs.append(HeadOutput(self._to_logits(feature), feature))
        return outputs
