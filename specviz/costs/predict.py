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
    keeps_draft: bool = True,
) -> float:
    """Return the new tokens a second of all rows, with a full batch.

    What a window does to acceptance is not predicted, nor that attention over a window is faster:
    a plan chooses a window only for the rows that it makes room for.
    """
    b = min(batch_size, job.requests)
    k = num_draft_tokens
    length = 1 + sum(job.rates[:k])
    slots = job.prompt_tokens + job.new_tokens / 2 + k
    round_s = float(sum(roofline.phase_seconds(b, k, slots).values()))
    draft = roofline.draft
    if draft is not None and k:
        if not keeps_draft:
            round_s += _reading_s(roofline, draft, b, slots, levers)
        elif levers.draft_window is not None and levers.draft_window < slots:
            half = levers.draft_window / 2
            # The later half is read again whenever as much has been written behind it.
            round_s += _reading_s(roofline, draft, b, half, levers) * length / max(half - k, 1)
    prefill_s = _reading_s(roofline, roofline.target, b, job.prompt_tokens, levers)
    if draft is not None and k and keeps_draft:
        tokens = min(job.prompt_tokens, levers.draft_window or job.prompt_tokens)
        prefill_s += _reading_s(roofline, draft, b, tokens, levers)
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
