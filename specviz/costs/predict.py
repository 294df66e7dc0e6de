"""How long a run takes at the roofline, with what its levers cost: for ranking, not for promises.

Not known here: models and memory.
"""

from dataclasses import dataclass

from specviz.costs.roofline import Roofline
from specviz.costs.shapes import ModelShape
from specviz.util.levers import Levers


@dataclass(frozen=True)
class DecodingJob:
    """What is to be decoded.

    Attributes:
        requests: how many prompts.
        prompt_tokens, new_tokens: of each of them, on average.
        rates: unconditional acceptance at positions 1..K.
    """

    requests: int
    prompt_tokens: float
    new_tokens: float
    rates: tuple[float, ...]


def tokens_per_s(
    roofline: Roofline,
    job: DecodingJob,
    *,
    batch_size: int,
    num_draft_tokens: int,
    levers: Levers,
) -> float:
    """Return the new tokens a second of all rows, with a full batch."""
    b = min(batch_size, job.requests)
    k = num_draft_tokens
    length = 1 + sum(job.rates[:k])
    slots = job.prompt_tokens + job.new_tokens / 2 + k
    round_s = float(sum(roofline.phase_seconds(b, k, slots).values()))
    draft = roofline.draft
    if draft is not None and k and not levers.keep_draft:
        round_s += _reading_s(roofline, draft, b, slots, levers)
    prefill_s = _reading_s(roofline, roofline.target, b, job.prompt_tokens, levers)
    if draft is not None and k and levers.keep_draft:
        prefill_s += _reading_s(roofline, draft, b, job.prompt_tokens, levers)
    rounds = job.new_tokens / length
    return b * job.new_tokens / (rounds * round_s + prefill_s)


def _reading_s(
    roofline: Roofline, shape: ModelShape, rows: float, tokens: float, levers: Levers
) -> float:
    """Return the seconds of reading `tokens` tokens in each of `rows` rows."""
    forwards = 1.0
    if levers.prefill_tokens is not None:
        forwards = max(rows * tokens / levers.prefill_tokens, 1.0)
    each = rows * tokens / forwards
    floor = roofline.forward(shape, 1, each, tokens / 2, logits=False)
    return forwards * float(floor.seconds)
