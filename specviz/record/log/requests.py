"""The requests of a log, and how far each of them has come.

Contract: grows with the events of a log. Not known here: forwards.
"""

from specviz.record.log.events import RoundEnd
from specviz.record.schema import Array, Table
from specviz.record.trace import flatten_requests

NO_BUDGET = 2**31 - 1  # stands in the table where a budget is not known


class Requests:
    """Prompts, outputs and budgets; None for a budget that is not known.

    Attributes:
        lengths: n of each, prompt included, after the last round that has ended.
    """

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.budgets: list[int | None] = []
        self._prompts: list[list[int]] = []
        self._outputs: list[list[int]] = []

    @property
    def prompt_lengths(self) -> list[int]:
        """The number of tokens of each prompt."""
        return [len(prompt) for prompt in self._prompts]

    @property
    def count(self) -> int:
        """The number of requests."""
        return len(self.lengths)

    def add(self, prompt: Array, budget: int | None) -> int:
        """Add a request; return its number."""
        self._prompts.append(prompt.tolist())
        self._outputs.append([])
        self.budgets.append(budget)
        self.lengths.append(prompt.size)
        return self.count - 1

    def extend(self, event: RoundEnd) -> None:
        """Append what a round emitted."""
        for request, tokens in zip(event.request.tolist(), event.values["emitted"], strict=True):
            emitted = tokens[tokens >= 0].tolist()
            self._outputs[request] += emitted
            self.lengths[request] += len(emitted)

    def statuses(self, eos_token_ids: list[int]) -> list[str]:
        """Return how each request ended."""
        found = []
        for output, budget in zip(self._outputs, self.budgets, strict=True):
            if output and output[-1] in eos_token_ids:
                found.append("eos")
            else:
                found.append("budget" if len(output) == budget else "interrupted")
        return found

    def table(self) -> Table:
        """Return the table `requests`."""
        budgets = [NO_BUDGET if budget is None else budget for budget in self.budgets]
        return flatten_requests(self._prompts, self._outputs, budgets)
