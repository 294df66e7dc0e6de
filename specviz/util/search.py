"""Search for a number at which something changes once and for good."""

from collections.abc import Callable


def smallest(enough: Callable[[int], bool], too_few: int, most: int) -> int | None:
    """Return the smallest number above `too_few`, up to `most`, that is enough, or None.

    More than enough must be enough, too.
    """
    # The step doubles until a number is enough, then the gap is halved. So few numbers are tried,
    # and none far above the answer, where trying one may be slow.
    step = 1
    found = None
    while found is None:
        number = min(too_few + step, most)
        if number <= too_few:
            return None
        if enough(number):
            found = number
        else:
            too_few = number
            step *= 2
    while found - too_few > 1:
        middle = (found + too_few) // 2
        if enough(middle):
            found = middle
        else:
            too_few = middle
    return found
