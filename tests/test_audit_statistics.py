"""Wilson's interval, and McNemar's test against a control."""

import math

import pytest

from specviz.checks.audit.statistics import against_control, share_of


@pytest.mark.parametrize(("count", "total"), [(0, 16), (1, 16), (30, 32), (7, 7)])
def test_the_interval_is_wilsons(count: int, total: int) -> None:
    found = share_of(count, total)
    z = 1.959963984540054  # of 95 %
    p = count / total
    middle = (p + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(p * (1 - p) / total + z**2 / (4 * total**2))
    assert found.share == p
    assert found.low == pytest.approx(middle - half, abs=1e-12)
    assert found.high == pytest.approx(middle + half, abs=1e-12)


def test_no_share_of_nothing() -> None:
    found = share_of(0, 0)
    assert math.isnan(found.share)
    assert math.isnan(found.low)


def test_only_prompts_where_the_two_differ_count() -> None:
    both = [True] * 3 + [False] * 20
    found = against_control([True] * 6 + both, [False] * 6 + both)
    assert (found.candidate_only, found.control_only) == (6, 0)
    assert found.p_value == pytest.approx(0.5**6)
    assert found.is_more
    assert (found.candidate.count, found.control.count) == (9, 3)
    # One of seven the other way: 8 of 128 outcomes are as extreme.
    found = against_control([True] * 6 + [False] + both, [False] * 6 + [True] + both)
    assert found.p_value == pytest.approx(8 / 128)
    assert not found.is_more


def test_as_many_divergences_as_the_control_are_no_more() -> None:
    same = [True, False, True]
    assert against_control(same, same).p_value == 1
    assert not against_control([False] * 9, [True] * 9).is_more
