"""What a fleet keeps of its requests so that a selector can choose among their proposals.

Not known here: rows and their places, time.
"""

import numpy as np

from specviz.record.schema import Array
from specviz.simulation.policy import Policy
from specviz.simulation.workload import Workload


class Verification:
    """Decides how many proposals of each row of a fleet are verified."""

    def __init__(self, workload: Workload, policy: Policy) -> None:
        self._selector = policy.selector
        self._drafted = policy.drafted
        self._num_draft_tokens = policy.num_draft_tokens
        self._column: Array | None = None
        if policy.drafted and policy.selector.reads is not None:
            self._column = getattr(workload, policy.selector.reads)
        # By request: rounds since a draft of it was last verified.
        self._waited = np.zeros(workload.first.size, np.int64)

    def choose(self, positions: Array, requests: Array, working: Array) -> Array:
        """Return how many proposals of each row are verified (L, b).

        Args:
            positions: (L, b), the rows' places among the acceptances.
            requests: (L, b), whose rows they are.
            working: (L, b), the rows that propose.
        """
        selector = self._selector
        column = None if self._column is None else self._column[positions, : self._drafted]
        if selector.rounds_to_wait is None:
            return selector.choose(column, working, self._num_draft_tokens)
        waited = self._waited[requests]
        verified = selector.choose(column, working, self._num_draft_tokens, waited)
        waited = np.where(verified > 0, 0, waited + 1)
        self._waited[requests[working]] = waited[working]
        return verified
