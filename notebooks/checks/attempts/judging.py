"""Judge a decoder by its texts and by its forwards, and find the smallest case that is wrong.

Contract: `judge` returns a sentence about a right decoder. About a wrong one it raises
WrongAnswerError, which names what broke, in which row, since which round. Not known here: times.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import specviz as sv
from checks.attempts.work import EOS, Assignment, Tokens, pair, small
from checks.base import NotYetError, WrongAnswerError, ask
from specviz.checks.watch.report import WatchReport

Decoder = Callable[..., Any]
MOST_CALLS = 12  # of the models, for each new token and K
LEAST_GAIN = 1.2  # tokens a round and row; without drafts there is 1


@dataclass(frozen=True)
class AttemptOutcome:
    """What a decoder returned for its work, or why it returned nothing."""

    work: Assignment
    outputs: list[Tokens]
    error: str = ""

    @property
    def is_right(self) -> bool:
        return not self.error and self.outputs == self.work.due()

    @property
    def problem(self) -> str:
        """Say in a sentence what is wrong with the outputs."""
        if self.error:
            return f"it stopped with {self.error}"
        due = self.work.due()
        if len(self.outputs) != len(due):
            return f"expected {len(due)} texts, got {len(self.outputs)}"
        wrong = [i for i, text in enumerate(due) if self.outputs[i] != text]
        first = wrong[0]
        found = self.outputs[first]
        same = _common(found, due[first])
        return (
            f"{len(wrong)} of {len(due)} texts are wrong; text {first} should go on with "
            f"{due[first][same : same + 4]} after {same} new tokens, and goes on with "
            f"{found[same : same + 4]}"
        )


@dataclass(frozen=True)
class Counterexample:
    """A small piece of work that a decoder does wrong, and what `sv.watch` says of it."""

    outcome: AttemptOutcome
    report: WatchReport | None

    @property
    def prompts(self) -> list[Tokens]:
        return [list(prompt) for prompt in self.outcome.work.prompts]

    def __str__(self) -> str:
        lines = [str(self.outcome.work)]
        if not self.outcome.is_right:  # its forwards may be wrong all the same
            lines.append(self.outcome.problem)
        if self.report is not None:
            lines.append(str(self.report))
        return "\n".join(lines)

    def step_through(self) -> Any:
        """Open the step-through at the first fault. Raises ValueError if there is no record."""
        if self.report is None:
            raise ValueError(
                "the decoder must run to its end to be recorded, got an error; mend that first"
            )
        return self.report.step_through()


def judge(decode: Decoder, work: Assignment, seen: list[Counterexample]) -> WatchReport:
    """Return the report of a right decoder.

    Args:
        decode: the decoder.
        work: what it is asked to do.
        seen: takes the counterexample, if there is one.

    Raises:
        NotYetError: the decoder returns nothing.
        WrongAnswerError: it is wrong; the message has the smallest case that was found.
    """
    outcome, audit = watched(decode, work)
    if outcome.is_right:
        report = audit()
        if report.is_right:
            return report
        found = Counterexample(outcome, report)
        seen.append(found)
        raise WrongAnswerError(f"the texts are right, and the forwards are not:\n{found}")
    found = _smallest(decode, work) or Counterexample(outcome, None)
    seen.append(found)
    raise WrongAnswerError(f"{outcome.problem}. The smallest case found:\n{found}")


def watched(decode: Decoder, work: Assignment) -> tuple[AttemptOutcome, Callable[[], WatchReport]]:
    """Run a decoder under `sv.watch`; return the outcome, and what audits it."""
    models = pair()
    with sv.watch(models.target, models.draft, tokenizer=models.tokenizer) as watch:
        outcome = run(decode, work)

    def audit() -> WatchReport:
        prompts = [list(prompt) for prompt in work.prompts]
        budget = work.max_new_tokens
        return watch.audit(prompts, outcome.outputs, max_new_tokens=budget, eos_token_ids=[EOS])

    return outcome, audit


def run(decode: Decoder, work: Assignment) -> AttemptOutcome:
    """Run a decoder. Raises NotYetError if it returns nothing."""
    models = pair()
    prompts = [list(prompt) for prompt in work.prompts]
    options: dict[str, Any] = {} if work.K is None else {"K": work.K}

    def call() -> Any:
        return decode(
            models.target,
            models.draft,
            prompts,
            max_new_tokens=work.max_new_tokens,
            eos=EOS,
            batch_size=work.batch_size,
            **options,
        )

    calls = MOST_CALLS * work.max_new_tokens * len(prompts) * (work.K or 1)
    try:
        with _at_most(calls):
            outputs = ask(call)
        return AttemptOutcome(work, [[int(token) for token in text] for text in outputs])
    except NotYetError:
        raise
    except Exception as error:  # the reader's code may raise anything
        return AttemptOutcome(work, [], f"{type(error).__name__}: {error}")


@contextmanager
def _at_most(calls: int) -> Iterator[None]:
    """End a decoder that never ends."""
    count = 0

    def hook(*_: Any) -> None:
        nonlocal count
        count += 1
        if count > calls:
            raise RuntimeError(f"it has called the models {count} times, so it may never end")

    models = (pair().target.base_model, pair().draft.base_model)
    handles = [model.register_forward_pre_hook(hook) for model in models]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _smallest(decode: Decoder, work: Assignment) -> Counterexample | None:
    """Return the first of the small pieces of work that goes wrong, cut behind its fault.

    One that `sv.watch` cannot judge is the last choice.
    """
    unjudged = None
    for each in small(work.batch_size):
        outcome = run(decode, each)
        if outcome.is_right:
            continue
        if outcome.error or len(outcome.outputs) != len(each.prompts):
            return Counterexample(outcome, None)
        for budget in _budgets(outcome):
            found = _audited(decode, each.cut(budget))
            if found.report is not None and not found.report.is_right:
                return found
            unjudged = unjudged or found
    return unjudged


def _budgets(outcome: AttemptOutcome) -> list[int]:
    """Return how many new tokens may show the fault: up to the first wrong token, and all."""
    pairs = zip(outcome.outputs, outcome.work.due(), strict=True)
    first = min(_common(found, due) for found, due in pairs if found != due)
    most = outcome.work.max_new_tokens
    return [min(first + 1, most), most]


def _audited(decode: Decoder, work: Assignment) -> Counterexample:
    outcome, audit = watched(decode, work)
    try:
        return Counterexample(outcome, None if outcome.is_right else audit())
    except ValueError:  # the outputs are not what was fed
        return Counterexample(outcome, None)


def _common(found: Sequence[int], due: Sequence[int]) -> int:
    """Return the length of the common beginning."""
    count = 0
    while found[count : count + 1] == due[count : count + 1] != []:
        count += 1
    return count
