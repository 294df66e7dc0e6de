"""A batch without a cache that samples: drafts are drawn from q and judged by p and q."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from checks.decoders.common import Tokens, finish, left_padded, positions_of


@torch.inference_mode()
def decode(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompts: list[Tokens],
    K: int = 4,
    max_new_tokens: int = 32,
    eos: int = 2,
    temperature: float = 0.5,
    seed: int = 0,
) -> list[Tokens]:
    generator = torch.Generator(target.device).manual_seed(seed)
    rows = [list(prompt) for prompt in prompts]
    outputs: list[Tokens] = [[] for _ in prompts]
    live = list(range(len(prompts)))  # the request of each row
    while live:
        longer, q = propose(draft, rows, K, temperature, generator)
        p = (last_logits(target, longer, K + 1) / temperature).softmax(-1)  # (rows, K+1, V)
        staying = []
        for i, request in enumerate(live):
            new = judge(p[i], q[i], longer[i][-K:], generator)
            rows[i] += new
            if not finish(outputs[request], new, max_new_tokens, eos):
                staying.append(i)
        live = [live[i] for i in staying]
        rows = [rows[i] for i in staying]
    return outputs


def propose(
    draft: PreTrainedModel,
    rows: list[Tokens],
    K: int,
    temperature: float,
    generator: torch.Generator,
) -> tuple[list[Tokens], Tensor]:
    """Return the rows with K drafts each, and q, (rows, K, V)."""
    q = []
    for _ in range(K):
        logits = last_logits(draft, rows, 1)[:, -1]
        q.append(logits.softmax(-1))
        drawn = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        rows = [row + new for row, new in zip(rows, drawn.tolist(), strict=True)]
    return rows, torch.stack(q, dim=1)


def judge(p: Tensor, q: Tensor, drafts: Tokens, generator: torch.Generator) -> Tokens:
    """Return the accepted drafts of a row and one token more; p is (K+1, V), q is (K, V)."""
    for i, token in enumerate(drafts):
        u = torch.rand((), generator=generator, device=p.device)
        if u * q[i, token] >= p[i, token]:
            rest = (p[i] - q[i]).clamp(min=0)
            return [*drafts[:i], int(torch.multinomial(rest, 1, generator=generator))]
    return [*drafts, int(torch.multinomial(p[-1], 1, generator=generator))]


def last_logits(model: PreTrainedModel, rows: list[Tokens], count: int) -> Tensor:
    """Return the logits of each row's last tokens, (rows, count, V)."""
    ids, mask = left_padded(rows, model.device)
    output = model(ids, attention_mask=mask, position_ids=positions_of(mask))
    return output.logits[:, -count:].float()
