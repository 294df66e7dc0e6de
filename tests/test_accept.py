"""The acceptance step on tensors made by hand, and against plain Python."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specviz.engine.accept import accept_greedy, clip

EOS = 2
VOCABULARY = 12


def make_logits(*rows: list[int]) -> Tensor:
    """Return logits (B, K+1, V) whose argmax is `rows`."""
    return torch.nn.functional.one_hot(torch.tensor(rows), VOCABULARY).float()


def clipped(accepted: int, emitted: list[int], room: int, eos: list[int]) -> tuple[list[int], bool]:
    """Return what one row gains, and whether it has finished."""
    outcome = clip(
        torch.tensor([accepted]),
        torch.tensor([emitted]),
        torch.tensor([room]),
        torch.tensor(eos, dtype=torch.long),
    )
    gained = outcome.gained.item()
    return outcome.emitted[0, :gained].tolist(), outcome.finished.item()


@pytest.mark.parametrize(
    ("drafts", "target", "accepted"),
    [
        ([3, 4, 5], [3, 4, 5, 6], 3),
        ([3, 4, 5], [7, 4, 5, 6], 0),
        ([3, 4, 5], [3, 7, 5, 6], 1),  # what agrees again after a rejection does not count
        ([3, 4, 5], [3, 4, 7, 6], 2),
        ([3], [3, 9], 1),
        ([], [9], 0),
    ],
)
def test_drafts_are_accepted_up_to_the_first_rejection(
    drafts: list[int], target: list[int], accepted: int
) -> None:
    found, emitted = accept_greedy(torch.tensor([drafts], dtype=torch.long), make_logits(target))
    assert found.tolist() == [accepted]
    assert emitted.tolist() == [target]
    assert emitted[0, :accepted].tolist() == drafts[:accepted]


def test_rows_accept_independently() -> None:
    drafts = torch.tensor([[3, 4], [3, 4], [3, 4]])
    accepted, emitted = accept_greedy(drafts, make_logits([3, 4, 5], [3, 8, 5], [8, 4, 5]))
    assert accepted.tolist() == [2, 1, 0]
    assert accepted.dtype == emitted.dtype == torch.int64


def test_no_drafts_leave_the_targets_own_token() -> None:
    accepted, emitted = accept_greedy(torch.empty(2, 0, dtype=torch.long), make_logits([4], [EOS]))
    outcome = clip(accepted, emitted, torch.tensor([5, 5]), torch.tensor([EOS]))
    assert outcome.gained.tolist() == [1, 1]
    assert outcome.finished.tolist() == [False, True]


def test_a_tie_in_float32_falls_on_the_first_token_as_in_generate() -> None:
    """In float64 the second token leads by 1e-12; `generate()` casts to float32 first."""
    logits = torch.full((1, 2, VOCABULARY), -1.0, dtype=torch.float64)
    logits[0, :, 4], logits[0, :, 7] = 1.0, 1.0 + 1e-12
    assert logits.argmax(-1).tolist() == [[7, 7]]
    accepted, emitted = accept_greedy(torch.tensor([[4]]), logits)
    assert (accepted.tolist(), emitted.tolist()) == ([1], [[4, 4]])


@pytest.mark.parametrize(
    ("accepted", "emitted", "room", "eos", "new", "finished"),
    [
        (3, [3, 4, 5, 6], 9, [EOS], [3, 4, 5, 6], False),
        (1, [3, 4, 5, 6], 9, [EOS], [3, 4], False),
        (0, [3, 4, 5, 6], 9, [EOS], [3], False),
        (3, [3, EOS, 5, 6], 9, [EOS], [3, EOS], True),  # inside the accepted drafts
        (3, [EOS, EOS, 5, 6], 9, [EOS], [EOS], True),
        (3, [3, 4, 5, EOS], 9, [EOS], [3, 4, 5, EOS], True),  # as the bonus
        (1, [3, EOS, 5, 6], 9, [EOS], [3, EOS], True),
        (1, [3, 4, EOS, 6], 9, [EOS], [3, 4], False),  # after what is emitted
        (3, [3, 9, EOS, 6], 9, [EOS, 9], [3, 9], True),  # the first of several
        (3, [3, EOS, 5, 6], 9, [], [3, EOS, 5, 6], False),  # no EOS id at all
        (3, [3, 4, 5, 6], 2, [EOS], [3, 4], True),
        (3, [3, 4, 5, 6], 4, [EOS], [3, 4, 5, 6], True),
        (3, [3, 4, EOS, 6], 2, [EOS], [3, 4], True),  # the budget comes first
        (3, [EOS, 4, 5, 6], 1, [EOS], [EOS], True),
        (2, [3, 4, 5, 6], 1, [EOS], [3], True),
        (3, [3, 4, 5, 6], 0, [EOS], [], True),  # finished before: nothing more
        (0, [EOS], 0, [EOS], [], True),
        (0, [5], 1, [], [5], True),
    ],
)
def test_what_is_emitted_ends_at_eos_and_at_the_budget(
    accepted: int, emitted: list[int], room: int, eos: list[int], new: list[int], finished: bool
) -> None:
    assert clipped(accepted, emitted, room, eos) == (new, finished)


def test_an_idle_row_does_not_hold_up_its_neighbours() -> None:
    emitted = torch.tensor([[3, 4, 5], [3, 4, 5], [EOS, 4, 5]])
    outcome = clip(torch.tensor([2, 2, 2]), emitted, torch.tensor([0, 7, 7]), torch.tensor([EOS]))
    assert outcome.gained.tolist() == [0, 3, 1]
    assert outcome.finished.tolist() == [True, False, True]
    assert outcome.accepted.tolist() == [2, 2, 2]  # what the target agreed with, cut or not


def plain(
    drafts: list[int], target: list[int], room: int, eos: list[int]
) -> tuple[int, list[int], bool]:
    """Return accepted, emitted and finished for one row, token by token."""
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == target[accepted]:
        accepted += 1
    new: list[int] = []
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
def test_tensors_agree_with_plain_python(
    drawn: tuple[list[list[int]], list[list[int]], list[int], list[int]],
) -> None:
    drafts, target, room, eos = drawn
    accepted, emitted = accept_greedy(torch.tensor(drafts, dtype=torch.long), make_logits(*target))
    outcome = clip(accepted, emitted, torch.tensor(room), torch.tensor(eos, dtype=torch.long))
    for i, row in enumerate(zip(drafts, target, room, strict=True)):
        expected_accepted, new, finished = plain(*row, eos)
        assert outcome.accepted[i] == expected_accepted
        assert outcome.emitted[i, : outcome.gained[i]].tolist() == new
        assert outcome.finished[i] == finished
