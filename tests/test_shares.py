"""Which cases of a sweep the fast tests keep."""

import pytest
from conftest import is_kept


@pytest.mark.parametrize("every", range(1, 9))
def test_about_every_nth_case_is_kept_the_first_one_always(every):
    kept = [index for index in range(20 * every) if is_kept(index, every)]
    assert kept[0] == 0
    assert abs(len(kept) - 20) <= 2


@pytest.mark.parametrize("every", range(2, 7))
@pytest.mark.parametrize("axis", range(2, 7))
def test_every_value_of_an_inner_axis_is_met(axis, every):
    cases = range(3 * axis * every)
    assert {index % axis for index in cases if is_kept(index, every)} == set(range(axis))
