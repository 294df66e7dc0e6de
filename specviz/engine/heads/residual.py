"""Several small heads on one state of the target: Medusa's, and Clover's, which know the tokens.

Head i proposes draft i. Medusa's heads see the target's state alone, so no head knows what the one
before proposed. Clover adds two things: a gate that lets the token before into the state, head
after head, and a transformer layer over all states before the first head.

Numbers differ from Medusa's paper by one: there the target's own LM head gives the first new token.
Here that token is committed already, and head 0 proposes the one behind it.

Sources: Medusa (Cai et al., arXiv 2401.10774); Clover (Xiao et al., arXiv 2405.00263), with the
gate of the code of Clover-2 ("cosine") or of Clover's figure ("silu").
"""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import silu

from specviz.engine.heads.base import DraftHead, HeadOutput, identity_linear
from specviz.engine.heads.layer import Chains, HeadLayer, at, shifted
from specviz.engine.heads.settings import HeadSettings

NOISE = 0.01
EPSILON = 1e-12


class Gate(nn.Module):
    """Lets a token into a state: state + weight(state, token) * V(token), by attention head.

    A softmax over this one key would be 1. The weight is the cosine of query and key, or a SiLU of
    their product.
    """

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__()
        size = settings.hidden_size
        self.kind = settings.gate
        self.heads = settings.num_attention_heads
        self.norm = nn.RMSNorm(size, eps=settings.rms_norm_eps)
        # Frequent tokens have long rows in a tied LM head, and would dominate.
        self.token_norm = nn.RMSNorm(size, eps=settings.rms_norm_eps)
        self.query = identity_linear(size, NOISE)
        self.key = identity_linear(size, NOISE)
        self.value = nn.Linear(size, size, bias=False)
        nn.init.zeros_(self.value.weight)

    def forward(self, states: Tensor, rows: Tensor) -> Tensor:
        """Return states (..., D), given the LM head's rows (..., D) of the tokens."""
        by_head = (*states.shape[:-1], self.heads, -1)
        token = self.token_norm(rows)
        query = self.query(self.norm(states)).view(by_head)
        key = self.key(token).view(by_head)
        if self.kind == "cosine":
            weight = cosine(query, key)
        else:
            weight = silu((query * key).sum(-1, keepdim=True) / query.shape[-1] ** 0.5)
        return states + (weight * self.value(token).view(by_head)).flatten(-2)


def cosine(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine (..., 1) of vectors (..., d); 0 for a zero vector, also in its gradient."""
    product = (first * second).sum(-1, keepdim=True)
    norms = first.square().sum(-1, keepdim=True) * second.square().sum(-1, keepdim=True)
    return product * (norms + EPSILON).rsqrt()


class ResidualHeads(DraftHead):
    """The heads of Medusa and Clover, with one LM head for all: the target's."""

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__(settings)
        size = settings.hidden_size
        if settings.block:
            self.block = HeadLayer(self.config, with_tokens=False)
        if settings.gate != "none":
            self.gates = nn.ModuleList(Gate(settings) for _ in range(settings.heads))
        self.heads = nn.ModuleList(nn.Linear(size, size) for _ in range(settings.heads))
        # What comes behind a head's first residual layer.
        self.deeper = nn.ModuleList()
        for _ in range(settings.heads if settings.depth > 1 else 0):
            layers = [nn.Linear(size, size) for _ in range(settings.depth - 1)]
            self.deeper.append(nn.ModuleList(layers))
        if settings.own_lm_heads:
            self.lm_heads = nn.ModuleList(
                nn.Linear(size, settings.vocabulary_size, bias=False) for _ in range(settings.heads)
            )
        for layer in [*self.heads.modules(), *self.deeper.modules()]:
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(
        self,
        input_ids: Tensor,
        features: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = True,
        logits_to_keep: int = 1,
        **others: Any,
    ) -> HeadOutput:
        """Return states (b, q, D) after the block, of the last `logits_to_keep` entries.

        There are no logits yet: those are `step`'s.
        """
        hidden = self.block(
            features,
            None,
            position_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            **others,
        )
        kept = hidden[:, hidden.shape[1] - logits_to_keep :]
        return HeadOutput(kept[..., :0], kept)

    def step(self, states: Tensor, tokens: Tensor, number: int) -> HeadOutput:
        """Return logits (..., V) of head `number`, and the states (..., D) for the next head.

        tokens: (...), the token before the one that is proposed.
        """
        if self.settings.gate != "none":
            states = self.gates[number](states, self.rows_of_lm_head(tokens))
        proposed = states + silu(self.heads[number](states))
        if len(self.deeper):
            layers = self.deeper[number]
            assert isinstance(layers, nn.ModuleList)
            for layer in layers:
                proposed = proposed + silu(layer(proposed))
        if self.settings.own_lm_heads:
            return HeadOutput(self.lm_heads[number](proposed), states)
        return HeadOutput(self.to_logits(proposed), states)

    def unroll(
        self, tokens: Tensor, features: Tensor, starts: Tensor, steps: int
    ) -> list[HeadOutput]:
        """Return logits (b, m, V) and states (b, m, D) of each head, for chains from `starts`.

        Head s reads token start + s, which is given, and predicts token start + s + 1. Arguments
        are as for `EagleHead.unroll`.
        """
        entries = shifted(features)
        states = at(entries, starts)
        if self.settings.block:
            chains = Chains(self.block, self.block.attended(entries, None), starts)
            states = chains.step(states, None, 0)
        outputs = []
        for number in range(steps):
            output = self.step(states, at(tokens, starts + number), number)
            outputs.append(output)
            states = output.hidden
        return outputs
