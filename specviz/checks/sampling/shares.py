"""How the chance of a false alarm is shared among the tests of an audit.

Contract: a name and a number go in. A test of a family is corrected by the family's share of alpha
and by how many tests the family has, so that all tests together raise a false alarm with a chance
of alpha at most (Bonferroni, weighted).
"""

import math

SHARES = {
    "place": 0.2,  # each new token, all rows and prefixes together
    "row": 0.15,  # each new token of each row
    "prefix": 0.1,  # each prefix
    "lean": 0.2,  # all draws lean to one side
    "rows": 0.1,  # rows that depend on each other
    "runs": 0.05,  # runs that depend on each other
    "drafts": 0.1,  # how drafts are drawn and judged
    "selection": 0.1,  # which drafts are verified
}


def price(family: str, count: int) -> float:
    """Return what the log evidence of one of `count` tests of a family loses."""
    return math.log(count / SHARES[family])
