"""The acceptance step on tensors made by hand, and against plain Python."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specviz.engine.accept import clip
from specviz.engine.draft import Draft
from specviz.engine.sampling import Greedy, Places
from specviz.engine.trees import Walk

EOS = 2
VOCABULARY = 12


def make_logits(*rows: list[int]) -> Tensor:
    """Return logits (B, K+1, V) whose argmax is `rows`."""
    return torch.nn.functional.one_hot(torch.tensor(rows), VOCABULARY).float()


def judge(drafts: list[list[int]], logits: Tensor) -> Walk:
    zero = torch.zeros(len(logits), dtype=torch.long)
    return Greedy().judge(Draft(torch.tensor(drafts, dtype=torch.long)), logits, Places(zero, zero))


def test_a_tie_in_float32_falls_on_the_first_token_as_in_generate():
    """In float64 the second token leads by 1e-12; `generate()` casts to float32 first."""
    logits = torch.full((1, 2, VOCABULARY), -1.0, dtype=torch.float64)
    logits[0, :, 4], logits[0, :, 7] = 1.0, 1.0 + 1e-12
    assert logits.argmax(-1).tolist() == [[7, 7]]
    accepted, emitted, _ = judge([[4]], logits)
    assert (accepted.tolist(), emitted.tolist()) == ([1], [[4, 4]])
    assert accepted.dtype == emitted.dtype == torch.int64


@pytest.mark.parametrize(
    ("drafts", "target", "room", "gained", "finished"),
    [
        ([3, 4, 5], [3, 4, 5, 6], 9, [3, 4, 5, 6], False),
        ([3, 4, 5], [3, 7, 5, 6], 9, [3, 7], False),  # what agrees again does not count
        ([3, EOS, 5], [3, EOS, 5, 6], 9, [3, EOS], True),  # inside the accepted drafts
        ([3, 4, 5], [3, 7, EOS, 6], 9, [3, 7], False),  # after what is emitted
        ([3, 4, EOS], [3, 4, EOS, 6], 2, [3, 4], True),  # the budget comes first
        ([3, 4, 5], [3, 4, 5, 6], 0, [], True),  # finished before: nothing more
        ([], [9], 9, [9], False),
    ],
)
def test_by_hand(drafts, target, room, gained, finished):
    """What the plain function below says, which the tensors are compared with."""
    assert plain(drafts, target, room, [EOS])[1:] == (gained, finished)


def plain(
    drafts: list[int], target: list[int], room: int, eos: list[int]
) -> tuple[int, list[int], bool]:
    """Return accepted, emitted and finished for one row, token by token."""
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == target[accepted]:
        accepted += 1
    new = []
    for token in [*drafts[:accepted], target[accepted]]:
        if len(new) == room:
            break
        new.append(token)
        if token in eos:
            return accepted, new, True
    return accepted, new, len(new) == room


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]], list[int], list[int]]:
    """Drafts (B, K), the target's choices (B, K+1), room (B,), EOS ids; of few tokens."""
    B, K = draw(st.integers(1, 4)), draw(st.integers(0, 5))
    token = st.integers(0, 3)
    matrix = [[draw(st.lists(token, min_size=n, max_size=n)) for _ in range(B)] for n in (K, K + 1)]
    return (
        matrix[0],
        matrix[1],
        draw(st.lists(st.integers(0, 8), min_size=B, max_size=B)),
        draw(st.lists(token, max_size=2)),
    )


@given(rounds())
def test_tensors_agree_with_plain_python(drawn):
    drafts, target, room, eos = drawn
    walk = judge(drafts, make_logits(*target))
    assert walk.emitted.tolist() == target
    outcome = clip(walk, torch.tensor(room), torch.tensor(eos, dtype=torch.long))
    for i, row in enumerate(zip(drafts, target, room, strict=True)):
        expected_accepted, new, finished = plain(*row, eos)
        assert outcome.accepted[i] == expected_accepted
        assert outcome.emitted[i, : outcome.gained[i]].tolist() == new
        assert outcome.finished[i] == finished
