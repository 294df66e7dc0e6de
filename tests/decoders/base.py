"""What all decoders here share: their arguments, greedy acceptance, and when a row ends.

Nothing in this folder imports specviz. The decoders are written as their users write them, so that
what watches a decoder can be tested on code that does not know of it.
"""

from collections.abc import Callable, Collection
from typing import Any, ClassVar

import torch
from transformers import PreTrainedModel


class Decoder:
    """A speculative decoder. A design overrides `run`; a fault overrides one small method of it.

    Attributes:
        rule: of specviz's RULES, the one that a fault breaks; None for a right decoder, and for one
            that only does needless work.
        affects: "text" if outputs are wrong, "speed" if they are right and cost more; None for a
            right decoder.
        costs: where `affects` is "speed", what the target has more of: "forwards" or "tokens".
        model: the model that is fed wrongly, "target" or "draft"; None if no feed is wrong.
        odd: whether a right decoder does something unusual that must not be taken for a fault.
        min_batch: with fewer prompts, a fault cannot show.
        needs_eos: whether the fault shows only with EOS.
    """

    rule: ClassVar[str | None] = None
    affects: ClassVar[str | None] = None
    costs: ClassVar[str | None] = None
    model: ClassVar[str | None] = None
    odd: ClassVar[bool] = False
    min_batch: ClassVar[int] = 1
    needs_eos: ClassVar[bool] = False

    def __init__(
        self,
        target: PreTrainedModel,
        draft: PreTrainedModel,
        K: int,
        max_new_tokens: int,
        eos_token_ids: Collection[int],
    ) -> None:
        self.target = target
        self.draft = draft
        self.K = K
        self.max_new_tokens = max_new_tokens
        self.eos = set(eos_token_ids)

    @classmethod
    def decode(
        cls,
        target: PreTrainedModel,
        draft: PreTrainedModel,
        prompts: list[list[int]],
        K: int,
        max_new_tokens: int,
        eos_token_ids: Collection[int] = (),
        **options: Any,
    ) -> list[list[int]]:
        """Return the new tokens of each prompt: EOS is kept, and nothing follows it."""
        decoder = cls(target, draft, K, max_new_tokens, eos_token_ids, **options)
        with torch.inference_mode():
            return decoder.run(prompts)

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        raise NotImplementedError

    def accept(self, drafts: list[int], choices: list[int]) -> list[int]:
        """Return the accepted drafts and the bonus: choices[i] is the target's token for draft i,
        and choices[K] its token behind all of them.
        """
        accepted = count_leading_matches(drafts, choices)
        return [*drafts[:accepted], choices[accepted]]

    def finish(self, output: list[int], new: list[int]) -> bool:
        """Append the new tokens of a row, up to EOS or its budget; return whether the row ends."""
        for token in new:
            output.append(token)
            if token in self.eos or len(output) == self.max_new_tokens:
                return True
        return False


def fault(
    *,
    affects: str,
    rule: str | None = None,
    model: str | None = None,
    costs: str | None = None,
    min_batch: int = 1,
    needs_eos: bool = False,
) -> Callable[[type[Decoder]], type[Decoder]]:
    """Declare what is wrong with a decoder; the arguments are attributes of `Decoder`."""

    def declare(design: type[Decoder]) -> type[Decoder]:
        design.rule = rule
        design.affects = affects
        design.model = model
        design.costs = costs
        design.min_batch = min_batch
        design.needs_eos = needs_eos
        return design

    return declare


def count_leading_matches(drafts: list[int], choices: list[int]) -> int:
    count = 0
    while count < len(drafts) and drafts[count] == choices[count]:
        count += 1
    return count


# Faults of any design: mixins, which stand before it among the bases of a class.


@fault(rule="bonus", affects="speed", costs="forwards")
class NoBonus(Decoder):
    """After a full acceptance, the target's token behind the drafts is dropped.

    Breaks "bonus"; the text is right, and takes more rounds.
    """

    def accept(self, drafts: list[int], choices: list[int]) -> list[int]:
        return super().accept(drafts, choices)[: len(drafts)]


@fault(rule="acceptance", affects="text")
class WrongColumn(Decoder):
    """Drafts are judged by the target's choice one token later.

    Breaks "acceptance"; the text is wrong.
    """

    def accept(self, drafts: list[int], choices: list[int]) -> list[int]:
        return super().accept(drafts[:-1], choices[1:])


@fault(rule="acceptance", affects="text")
class OneDraftTooMany(Decoder):
    """The first rejected draft is emitted, and the target's choice behind it.

    Breaks "acceptance"; the text is wrong.
    """

    def accept(self, drafts: list[int], choices: list[int]) -> list[int]:
        accepted = min(count_leading_matches(drafts, choices) + 1, len(drafts))
        return [*drafts[:accepted], choices[accepted]]


@fault(rule="eos", affects="text", needs_eos=True)
class EosOnlyLast(Decoder):
    """EOS ends a row only as the last new token, not among accepted drafts.

    Breaks "eos"; the text goes on behind EOS.
    """

    def finish(self, output: list[int], new: list[int]) -> bool:
        output += new[: self.max_new_tokens - len(output)]
        return output[-1] in self.eos or len(output) == self.max_new_tokens


@fault(rule="budget", affects="text")
class OverBudget(Decoder):
    """All tokens of the last round are emitted, past the budget.

    Breaks "budget"; the text is too long.
    """

    def finish(self, output: list[int], new: list[int]) -> bool:
        for token in new:
            output.append(token)
            if token in self.eos:
                return True
        return len(output) >= self.max_new_tokens
