"""What all decoders here share: their arguments, greedy acceptance, and when a row ends.

Nothing in this folder imports specviz. The decoders are written as their users write them, so that
what watches a decoder can be tested on code that does not know of it.
"""

from collections.abc import Collection
from typing import Any, ClassVar

import torch
from transformers import PreTrainedModel

from checks.decoders.common import count_accepted

Tokens = list[int]


class Decoder:
    """A speculative decoder. A design overrides `run`; a fault overrides one small method of it.

    What a class declares of itself are arguments of its definition, as in
    `class Fault(Design, rule="kv", affects="text")`. A fault's docstring says what is wrong.

    Attributes:
        name: the module and the class.
        rule: of specviz's RULES, the one that a fault breaks; None for a right decoder, and for one
            that only does needless work.
        affects: "text" if outputs are wrong, "speed" if they are right and cost more; None for a
            right decoder.
        costs: where `affects` is "speed", what the target has more of: "forwards" or "tokens".
        model: the model that is fed wrongly, "target" or "draft"; None if no feed is wrong.
        odd: whether a right decoder does something unusual that must not be taken for a fault.
        min_batch: with fewer prompts, a fault cannot show.
        needs_eos: whether the fault shows only with EOS.
        like: the name of the right decoder that a faulty one differs from in the fault alone.
    """

    designs: ClassVar[list[type["Decoder"]]] = []
    name: ClassVar[str] = ""
    rule: ClassVar[str | None] = None
    affects: ClassVar[str | None] = None
    costs: ClassVar[str | None] = None
    model: ClassVar[str | None] = None
    odd: ClassVar[bool] = False
    min_batch: ClassVar[int] = 1
    needs_eos: ClassVar[bool] = False
    like: ClassVar[str | None] = None

    def __init_subclass__(cls, **declared: Any) -> None:
        super().__init_subclass__()
        cls.name = f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"
        for key, value in declared.items():
            setattr(cls, key, value)
        if cls.affects:
            cls.like = next(base.name for base in cls.__mro__ if base.affects is None)
        if cls.__module__ != __name__:
            Decoder.designs.append(cls)

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
        prompts: list[Tokens],
        K: int,
        max_new_tokens: int,
        eos_token_ids: Collection[int] = (),
        **options: Any,
    ) -> list[Tokens]:
        """Return the new tokens of each prompt: EOS is kept, and nothing follows it."""
        decoder = cls(target, draft, K, max_new_tokens, eos_token_ids, **options)
        with torch.inference_mode():
            return decoder.run(prompts)

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        raise NotImplementedError

    def accept(self, drafts: Tokens, choices: Tokens) -> Tokens:
        """Return the accepted drafts and the bonus: choices[i] is the target's token for draft i,
        and choices[K] its token behind all of them.
        """
        accepted = count_accepted(drafts, choices)
        return [*drafts[:accepted], choices[accepted]]

    def finish(self, output: Tokens, new: Tokens) -> bool:
        """Append the new tokens of a row, up to EOS or its budget; return whether the row ends."""
        for token in new:
            output.append(token)
            if token in self.eos or len(output) == self.max_new_tokens:
                return True
        return False


class Batch(Decoder):
    """A batch whose rows leave as they end. A design says how it drafts, verifies and aligns.

    `rows` has the tokens of each row, and `requests` the prompt that it continues.
    """

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        self.rows = [list(prompt) for prompt in prompts]
        self.requests = list(range(len(prompts)))
        outputs: list[Tokens] = [[] for _ in prompts]
        self.prefill()
        while True:
            new = self.round()
            for row, tokens in zip(self.rows, new, strict=True):
                row += tokens
            self.align(new)
            staying = self.commit(outputs, new)
            if not staying:
                return outputs
            self.rows = [self.rows[row] for row in staying]
            self.requests = [self.requests[row] for row in staying]
            self.leave(staying)

    def round(self) -> list[Tokens]:
        """Return the new tokens of each row."""
        drafts = self.propose()
        choices = self.verify(drafts)
        return [self.accept(*row) for row in zip(drafts, choices, strict=True)]

    def commit(self, outputs: list[Tokens], new: list[Tokens]) -> list[int]:
        """Append what the rows gained to the outputs; return the rows that go on."""
        return [
            row
            for row, request in enumerate(self.requests)
            if not self.finish(outputs[request], new[row])
        ]

    def longer(self, drafts: list[Tokens]) -> list[Tokens]:
        return [row + new for row, new in zip(self.rows, drafts, strict=True)]

    def prefill(self) -> None:
        """Read what has to be read before the first round."""

    def align(self, new: list[Tokens]) -> None:
        """Bring the caches in step with the rows, which end in these new tokens."""

    def leave(self, staying: list[int]) -> None:
        """Keep these rows in the caches."""


# Faults of any design: mixins, which stand before it among the bases of a class.


class NoBonus(Decoder, rule="bonus", affects="speed", costs="forwards"):
    """After a full acceptance, the target's token behind the drafts is dropped."""

    def accept(self, drafts: Tokens, choices: Tokens) -> Tokens:
        return super().accept(drafts, choices)[: len(drafts)]


class WrongColumn(Decoder, rule="acceptance", affects="text"):
    """Drafts are judged by the target's choice one token later."""

    def accept(self, drafts: Tokens, choices: Tokens) -> Tokens:
        return super().accept(drafts[:-1], choices[1:])


class OneDraftTooMany(Decoder, rule="acceptance", affects="text"):
    """The first rejected draft is emitted, and the target's choice behind it."""

    def accept(self, drafts: Tokens, choices: Tokens) -> Tokens:
        accepted = min(count_accepted(drafts, choices) + 1, len(drafts))
        return [*drafts[:accepted], choices[accepted]]


class EosOnlyLast(Decoder, rule="eos", affects="text", needs_eos=True):
    """EOS ends a row only as the last new token, not among accepted drafts."""

    def finish(self, output: Tokens, new: Tokens) -> bool:
        output += new[: self.max_new_tokens - len(output)]
        return output[-1] in self.eos or len(output) == self.max_new_tokens


class OverBudget(Decoder, rule="budget", affects="text"):
    """All tokens of the last round are emitted, past the budget."""

    def finish(self, output: Tokens, new: Tokens) -> bool:
        for token in new:
            output.append(token)
            if token in self.eos:
                return True
        return len(output) >= self.max_new_tokens


def with_faults(design: type[Decoder], *faults: type[Decoder]) -> None:
    """Derive a faulty decoder from a design for each of these mixins."""
    for fault in faults:
        name = fault.__name__ + design.__name__
        type(name, (fault, design), {"__module__": design.__module__})
