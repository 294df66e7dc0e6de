"""Checks of 20_state: which states count, a ring of states, and a mended decoder."""

from collections.abc import Sequence

import torch

import specviz as sv
from checks.base import Answer, WrongAnswerError, ask, exercise, expect
from checks.decoders import replay as _replay
from checks.decoders.mending import mended

_PROMPTS = (5, 0, 9)  # bundled ones
_NEW_TOKENS = 24


@exercise
def indices(left: Sequence[int], target: int, draft: int) -> str:
    """Check exercise 1: n = 10, K = 4, a = 1."""
    n, K, a = 10, 4, 1
    expect(list(left), list(range(n - 1, n + K)), "the indices behind which states are left")
    expect(target, n - 1 + a, "the index behind which the target goes on")
    expect(draft, n + a - 2, "the index behind which the draft goes on, which reads two tokens")
    return "the target goes on behind the last accepted draft, and the draft one token earlier"


@exercise
def take(answer: Answer) -> str:
    """Check a function of held (B, W, d), tags (B, W) and indices (B,): states (B, d).

    It returns zeros for index -1, and raises KeyError for a state that is gone.
    """
    rng = torch.Generator().manual_seed(0)
    for number in range(60):
        B, W = (int(torch.randint(1, 6, (), generator=rng)) for _ in range(2))
        last = torch.randint(0, 20, (B,), generator=rng)
        tags = torch.full((B, W), -1)
        held = torch.full((B, W, 2), 9.0)  # what the requests before have left
        for row in range(B):
            for index in range(max(int(last[row]) - W + 1, 0), int(last[row]) + 1):
                tags[row, index % W] = index
                held[row, index % W] = torch.tensor([index, row + 1.0])
        wanted = last - torch.randint(0, W, (B,), generator=rng)
        wanted = torch.where(wanted < 0, -1, wanted)
        case = f"tags {tags.tolist()} and indices {wanted.tolist()}"
        due = [[i, row + 1.0] if i >= 0 else [0.0, 0.0] for row, i in enumerate(wanted.tolist())]
        found = ask(answer, held.clone(), tags.clone(), wanted.clone())
        expect(torch.as_tensor(found).tolist(), due, case)
        if number % 3 == 0:
            _must_refuse(answer, held, tags, wanted, int(last[0]) + 1)
    return "right for 60 rings, and states that are gone are refused"


def _must_refuse(
    answer: Answer, held: torch.Tensor, tags: torch.Tensor, wanted: torch.Tensor, gone: int
) -> None:
    wanted = wanted.clone()
    wanted[0] = gone
    try:
        answer(held, tags, wanted)
    except KeyError:
        return
    raise WrongAnswerError(
        f"for tags {tags.tolist()} and indices {wanted.tolist()} expected a KeyError: row 0 has "
        f"no state after token {gone}"
    )


@exercise
def replay(old: str, new: str) -> str:
    """Check exercise 3: a line of `replay`, and the line in its place."""
    pair = sv.load_pair("hybrid", dtype="float32")
    assert pair.tokenizer is not None
    texts = sv.load_prompts()
    prompts = [pair.tokenizer(texts[number]).input_ids for number in _PROMPTS]
    right = sv.generate(
        pair, prompts, strategy="autoregressive", max_new_tokens=_NEW_TOKENS, progress=False
    )
    decoder = mended(_replay, old, new)
    found = decoder.decode(pair.target, pair.draft, prompts, max_new_tokens=_NEW_TOKENS)
    for number, (text, wanted) in enumerate(zip(found, right.tokens, strict=True)):
        if text != wanted:
            raise WrongAnswerError(f"text {number} of {len(found)} is not the target's own")
    return "three texts, and each is the target's own"
