"""Checks of 14_memory: which lever frees most, bytes of K/V, rows at equal memory, and a chat."""

from typing import Any

import numpy as np

from checks.base import Answer, WrongAnswerError, ask, exercise
from specviz.costs.memory import memory, peak_bytes
from specviz.costs.shapes import named_pair
from specviz.engine.strategies import STRATEGIES
from specviz.util.levers import Levers

# The run of the notebook, and the levers that the reader may choose from.
_PAIR = "qwen3-8b/0.6b"
_SIZES: dict[str, Any] = {"dtype": "bfloat16", "prompt_tokens": 512, "max_new_tokens": 256}
_LEVERS: dict[str, dict[str, Any]] = {
    "K": {"num_draft_tokens": 1},
    "chunks": {"levers": Levers(prefill_tokens=2048)},
    "draft": {"levers": Levers(keep_draft=False)},
}
# The conversation of the notebook: tokens of the prompt, of the reply, and of the next message.
_PROMPT = 40
_REPLY = 24
_MESSAGE = 12


@exercise
def lever(answer: Any) -> str:
    """Check the name of the lever that frees most memory when it is pulled alone."""
    if answer not in _LEVERS:
        raise WrongAnswerError(f"got {answer!r}; choose one of {', '.join(_LEVERS)}")
    whole = _peak({})
    freed = {name: whole - _peak(pulled) for name, pulled in _LEVERS.items()}
    best = max(freed, key=freed.__getitem__)
    mine = freed[answer] / 1e9
    if answer == "K":
        raise WrongAnswerError(
            f"K = 1 frees {mine:.2f} GB; a row holds K/V of K + 1 new tokens in a round, and of "
            "all its other tokens all the time"
        )
    if answer != best:
        raise WrongAnswerError(
            f"that lever frees {mine:.2f} GB, and one of the others more; the draft's K/V is there "
            "again, for all rows at once, while a round drafts"
        )
    return f"it frees {mine:.2f} GB, and K = 1 frees {freed['K'] / 1e9:.2f} GB"


def _peak(pulled: dict[str, Any]) -> int:
    target, draft = named_pair(_PAIR)
    run = _SIZES | {"batch_size": 32} | pulled
    return peak_bytes(memory(target, draft, STRATEGIES["inplace"](), **run))


@exercise
def kv_bytes(answer: Answer) -> str:
    """Check answer(rows, prompt, new, K, layers, kv_heads, head_dim, size): a model's K/V bytes."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        rows, layers, kv_heads = rng.integers(1, 40, 3).tolist()
        prompt, new = rng.integers(1, 2000, 2).tolist()
        K = int(rng.integers(1, 9))
        head_dim = int(rng.choice([64, 128]))
        size = int(rng.choice([2, 4]))
        slots = STRATEGIES["inplace"]().slots(prompt + new, new, K)
        wanted = 2 * rows * slots * layers * kv_heads * head_dim * size
        found = ask(answer, rows, prompt, new, K, layers, kv_heads, head_dim, size)
        if found != wanted:
            hint = "keys and values both count; " if 2 * found == wanted else ""
            raise WrongAnswerError(
                f"for {rows} rows of {prompt} + {new} tokens, K = {K}, {layers} layers, {kv_heads} "
                f"heads of {head_dim} and {size} bytes expected {wanted}, got {found}; {hint}a row "
                f"has {slots} slots"
            )
    return "right for 100 models and runs"


@exercise
def rows_alone(answer: Answer) -> str:
    """Check answer(budget, target_weights, draft_weights, target_row, draft_row) without drafts."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        target_weights, draft_weights = rng.integers((50, 1), (200, 60)).tolist()
        target_row, draft_row = rng.integers((2, 1), (20, 12)).tolist()
        spare = int(rng.integers(0, 400))
        budget = target_weights + draft_weights + spare
        wanted = (budget - target_weights) // target_row
        found = ask(answer, budget, target_weights, draft_weights, target_row, draft_row)
        if found != wanted:
            raise WrongAnswerError(
                f"for a budget of {budget} MB, weights of {target_weights} and {draft_weights} MB, "
                f"and rows of {target_row} and {draft_row} MB expected {wanted} rows, got {found}; "
                "decoding without drafts has no draft model at all"
            )
    return "right for 200 budgets"


@exercise
def reading(kept_all: Any, kept_prompt: Any, kept_none: Any) -> str:
    """Check how many tokens the target reads as the second turn begins, by what was kept."""
    # The last token of the message is read by the first verification. The last one of the reply
    # was never read, so it has no K/V.
    whole = _PROMPT + _REPLY + _MESSAGE - 1
    cases = {
        "all": (kept_all, whole - (_PROMPT + _REPLY - 1)),
        "the prompt": (kept_prompt, whole - _PROMPT),
        "nothing": (kept_none, whole),
    }
    for kept, (found, wanted) in cases.items():
        if found == wanted + 1 and kept != "all":
            raise WrongAnswerError(
                f"with {kept} kept, {found} counts the last token of the message, "
                "which is pending: the first verification reads it"
            )
        if found != wanted:
            raise WrongAnswerError(
                f"with {kept} kept, got {found!r}; count the tokens of the conversation but the "
                "last, less those that have K/V"
            )
    return ", ".join(f"{wanted} with {kept} kept" for kept, (_, wanted) in cases.items())
