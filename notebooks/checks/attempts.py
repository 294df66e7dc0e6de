"""What the checks do with a reader's decoder: run it, judge it, time it, and keep its speeds.

A decoder is a function `decode(target, draft, prompts, K, max_new_tokens, eos, batch_size)` that
returns the new tokens of each prompt. Nothing here prints.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from transformers import PreTrainedModel

import specviz as sv
from checks.base import NotYetError, WrongAnswerError, ask
from specviz.bench.measuring import synchronize
from specviz.util.files import write

Tokens = list[int]
Decoder = Callable[..., Any]
EOS = 2
NEW_TOKENS = 16
ENDING = (10, 8)  # bundled prompts whose texts end with EOS before that
MOST_CALLS = 12  # of the models, for each new token and K
LEAST_GAIN = 1.2  # tokens a round and row; without drafts there is 1
MOST_TURNS = 7
CLEAR = 0.08  # two turns are enough if both ratios are farther from 1

# The prompts that a decoder is tried on, and the texts that are right


@dataclass(frozen=True)
class Assignment:
    """One call of a decoder. K is None if the decoder may choose it."""

    prompts: tuple[tuple[int, ...], ...]
    K: int | None = 4
    max_new_tokens: int = NEW_TOKENS
    batch_size: int = 1

    def due(self) -> list[Tokens]:
        """Return the new tokens of each prompt that are right."""
        return [text[: self.max_new_tokens] for text in texts(self.prompts)]

    def __str__(self) -> str:
        choice = "" if self.K is None else f"K={self.K}, "
        return (
            f"decode(pair.target, pair.draft, {[list(prompt) for prompt in self.prompts]},\n"
            f"       {choice}max_new_tokens={self.max_new_tokens}, eos={EOS}, "
            f"batch_size={self.batch_size})"
        )


def one_row() -> Assignment:
    """Return three prompts, one after the other. The text of the second ends with EOS."""
    return Assignment(tuple(bundled((5, 10, 0))))


def batch() -> Assignment:
    """Return eleven prompts for eight rows, so that three enter by refill.

    Two texts end with EOS. One prompt of the first batch and one that enters later contain EOS.
    """
    first = bundled((5, 0, 10, 1, 12, 8))
    later = bundled((3, 6, 2))
    shots = with_example(ENDING)
    prompts = (*first, shots[0], *later[:2], shots[1], later[2])
    return Assignment(tuple(prompts), batch_size=8)


def three_rows() -> Assignment:
    """Return six prompts for three rows. The second of the first three is the longest."""
    prompts = batch().prompts
    return Assignment(tuple(prompts[number] for number in (5, 6, 4, 7, 8, 0)), batch_size=3)


def timed() -> Assignment:
    """Return ten prompts for eight rows, of 10 to 29 tokens; two of the texts end with EOS."""
    return Assignment(tuple(bundled((*range(9), 10))), None, 24, 8)


def small(batch_size: int) -> list[Assignment]:
    """Return small pieces of work, the smallest first: one row, two lengths, refill, EOS."""
    short = [prompt[:count] for prompt, count in zip(bundled((1, 4, 9)), (3, 6, 2), strict=True)]
    ending = bundled(ENDING[:1])
    shots = with_example(ENDING)
    rows = min(batch_size, 2)
    sets: list[tuple[Sequence[tuple[int, ...]], int]]
    sets = [(short[:1], 1), (ending, 1), (shots[:1], 1)]
    if rows > 1:
        sets[1:1] = [(short[:2], rows), (short, rows), (bundled((1, 4, 9)), rows)]
        sets.append(((*ending, *short), rows))
        sets.append(((*short[:1], *shots), rows))
    return [Assignment(tuple(prompts), K, 12, size) for prompts, size in sets for K in (1, 2, 4)]


@cache
def pair() -> sv.Pair:
    """Return the embedded pair, on the best device."""
    return sv.load_pair(dtype="float32")


@cache
def texts(prompts: tuple[tuple[int, ...], ...], max_new_tokens: int = 32) -> list[Tokens]:
    """Return what the target writes without a draft, up to EOS."""
    return _without_drafts(prompts, 8, max_new_tokens)


def _without_drafts(
    prompts: Sequence[Sequence[int]], batch_size: int, max_new_tokens: int
) -> list[Tokens]:
    return sv.generate(
        pair(),
        [list(prompt) for prompt in prompts],
        strategy="autoregressive",
        batch_size=batch_size,
        max_new_tokens=max_new_tokens,
        progress=False,
    ).tokens


@cache
def _all_bundled() -> list[tuple[int, ...]]:
    tokenizer = pair().tokenizer
    assert tokenizer is not None, "the embedded pair has one"
    return [tuple(tokenizer(text).input_ids) for text in sv.load_prompts(limit=16)]


def bundled(numbers: Sequence[int]) -> list[tuple[int, ...]]:
    return [_all_bundled()[number] for number in numbers]


def with_example(numbers: Sequence[int], new_tokens: int = 32) -> list[tuple[int, ...]]:
    """Return prompts that hold an example up to its EOS, and the beginning of the same again."""
    prompts = tuple(bundled(numbers))
    return [
        (*prompt, *text, *prompt)
        for prompt, text in zip(prompts, texts(prompts, new_tokens), strict=True)
    ]


# Running and judging


@dataclass(frozen=True)
class Attempt:
    """What a decoder returned for its work, or why it returned nothing, and what `sv.watch` says.

    A wrong one is a counterexample, which is printed with the call that repeats it.
    """

    work: Assignment
    outputs: list[Tokens]
    error: str = ""
    report: sv.WatchReport | None = None

    @property
    def prompts(self) -> list[Tokens]:
        return [list(prompt) for prompt in self.work.prompts]

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
        same = common(found, due[first])
        return (
            f"{len(wrong)} of {len(due)} texts are wrong; text {first} should go on with "
            f"{due[first][same : same + 4]} after {same} new tokens, and goes on with "
            f"{found[same : same + 4]}"
        )

    def __str__(self) -> str:
        lines = [str(self.work)]
        if not self.is_right:  # its forwards may be wrong all the same
            lines.append(self.problem)
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


def judge(decode: Decoder, work: Assignment, seen: list[Attempt]) -> sv.WatchReport:
    """Return the report of a right decoder.

    Args:
        decode: the decoder.
        work: what it is asked to do.
        seen: takes the counterexample, if there is one.

    Raises:
        NotYetError: the decoder returns nothing.
        WrongAnswerError: it is wrong; the message has the smallest case that was found, with what
            broke, in which row, since which round.
    """
    attempt, audit = watched(decode, work)
    if attempt.is_right:
        report = audit()
        if report.is_right:
            return report
        seen.append(replace(attempt, report=report))
        raise WrongAnswerError(f"the texts are right, and the forwards are not:\n{seen[-1]}")
    seen.append(_smallest(decode, work) or attempt)
    raise WrongAnswerError(f"{attempt.problem}. The smallest case found:\n{seen[-1]}")


def watched(decode: Decoder, work: Assignment) -> tuple[Attempt, Callable[[], sv.WatchReport]]:
    """Run a decoder under `sv.watch`; return the attempt, and what audits it."""
    models = pair()
    with sv.watch(models.target, models.draft, tokenizer=models.tokenizer) as watch:
        attempt = run(decode, work)

    def audit() -> sv.WatchReport:
        budget = work.max_new_tokens
        return watch.audit(
            attempt.prompts, attempt.outputs, max_new_tokens=budget, eos_token_ids=[EOS]
        )

    return attempt, audit


def run(decode: Decoder, work: Assignment) -> Attempt:
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

    most = MOST_CALLS * work.max_new_tokens * len(prompts) * (work.K or 1)

    def too_many(count: int) -> Exception:
        return RuntimeError(f"it has called the models {count} times, so it may never end")

    try:
        with counted((models.target.base_model, models.draft.base_model), most, too_many):
            outputs = ask(call)
        return Attempt(work, [[int(token) for token in text] for text in outputs])
    except NotYetError:
        raise
    except Exception as error:  # the reader's code may raise anything
        return Attempt(work, [], f"{type(error).__name__}: {error}")


@contextmanager
def counted(
    models: Sequence[PreTrainedModel], most: int, too_many: Callable[[int], Exception]
) -> Iterator[list[int]]:
    """Count forwards, as the length of a list, and end a decoder that never ends."""
    calls: list[int] = []

    def count(*_: Any) -> None:
        calls.append(len(calls))
        if len(calls) > most:
            raise too_many(len(calls))

    handles = [model.register_forward_pre_hook(count) for model in models]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _smallest(decode: Decoder, work: Assignment) -> Attempt | None:
    """Return the first of the small pieces of work that goes wrong, cut behind its fault.

    One that `sv.watch` cannot judge is the last choice.
    """
    unjudged = None
    for each in small(work.batch_size):
        attempt = run(decode, each)
        if attempt.is_right:
            continue
        if attempt.error or len(attempt.outputs) != len(each.prompts):
            return attempt
        # The fault may show up to the first wrong token, or only with all tokens.
        pairs = zip(attempt.outputs, each.due(), strict=True)
        first = min(common(found, due) for found, due in pairs if found != due)
        for budget in (min(first + 1, each.max_new_tokens), each.max_new_tokens):
            found, audit = watched(decode, replace(each, max_new_tokens=budget))
            if not found.is_right:
                with suppress(ValueError):  # the outputs are not what was fed
                    found = replace(found, report=audit())
            if found.report is not None and not found.report.is_right:
                return found
            unjudged = unjudged or found
    return unjudged


def common(found: Sequence[int], due: Sequence[int]) -> int:
    """Return the length of the common beginning."""
    count = 0
    while found[count : count + 1] == due[count : count + 1] != []:
        count += 1
    return count


# The use of rows


@dataclass(frozen=True)
class RowUse:
    """How a decoder used its rows.

    Attributes:
        most: requests in one forward of the target that decides tokens.
        first_empty: the first round with a free row while a prompt waited; None if there is none.
        empty: free rows while a prompt waited, summed over rounds.
        late: prompts that were not in the first such forward.
    """

    most: int
    first_empty: int | None
    empty: int
    late: int


def rows_of(report: sv.WatchReport, batch_size: int) -> RowUse:
    """Count rows in each round of a run."""
    rounds = [
        [report.rounds[each.part.number] for each in request.rounds] for request in report.requests
    ]
    begins = [numbers[0] for numbers in rounds]
    last = max(numbers[-1] for numbers in rounds)
    most = empty = 0
    first_empty = None
    for number in range(min(begins), last + 1):
        busy = sum(number in numbers for numbers in rounds)
        most = max(most, busy)
        waiting = sum(begin > number for begin in begins)
        free = min(batch_size - busy, waiting)
        if busy and free > 0:
            empty += free
            first_empty = number if first_empty is None else first_empty
    late = sum(begin > min(begins) for begin in begins)
    return RowUse(most, first_empty, empty, late)


# Speed, beside batched autoregressive decoding, in turns


@dataclass(frozen=True)
class Speed:
    """What was measured.

    Attributes:
        tokens_per_s: of the decoder, in the median turn.
        ratios: of its speed to that of batched autoregressive decoding, one a turn.
    """

    tokens_per_s: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return median(self.ratios)


def measure(decode: Decoder, work: Assignment) -> Speed:
    """Measure a decoder, whose texts must be right in each turn.

    On a CPU, one thread works and CPU seconds are counted, as other programs disturb these less. On
    a GPU, seconds are counted until the device has finished.

    Raises:
        WrongAnswerError: a text is wrong.
        NotYetError: the decoder is a stub.
    """

    def ours() -> None:
        outcome = run(decode, work)
        if not outcome.is_right:
            raise WrongAnswerError(
                f"{outcome.problem}; a speed counts only if all texts are right, and check.batched "
                "says what is wrong"
            )

    def theirs() -> None:
        _without_drafts(work.prompts, work.batch_size, work.max_new_tokens)

    _seconds(ours)  # the first run of each warms up
    _seconds(theirs)
    tokens = sum(len(text) for text in work.due())
    own = []
    ratios: list[float] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        while not is_decided(ratios):
            turn = [ours, theirs] if len(ratios) % 2 == 0 else [theirs, ours]
            seconds = {step: _seconds(step) for step in turn}
            own.append(tokens / seconds[ours])
            ratios.append(seconds[theirs] / seconds[ours])
    finally:
        torch.set_num_threads(threads)
    return Speed(median(own), tuple(ratios))


def is_decided(ratios: list[float]) -> bool:
    if len(ratios) < 2:
        return False
    one_side = min(ratios) > 1 + CLEAR or max(ratios) < 1 - CLEAR
    return one_side or len(ratios) >= MOST_TURNS


def _seconds(step: Callable[[], Any]) -> float:
    device = pair().device
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    synchronize(device)
    began = clock()
    step()
    synchronize(device)
    return clock() - began


COLUMNS = ("date", "milestone", "batch_size", "tokens_per_s", "ratio", "low", "high", "device")


def add_attempt(path: Path, milestone: int, batch_size: int, speed: Speed, device: str) -> None:
    """Add a line to the leaderboard of a reader's own attempts, a CSV file.

    Raises OSError if it cannot be written, and what `leaderboard` raises.
    """
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "milestone": milestone,
        "batch_size": batch_size,
        "tokens_per_s": round(speed.tokens_per_s, 1),
        "ratio": round(speed.ratio, 3),
        "low": round(min(speed.ratios), 3),
        "high": round(max(speed.ratios), 3),
        "device": device,
    }
    earlier = leaderboard(path).to_dict("records")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = pd.DataFrame([*earlier, line], columns=list(COLUMNS)).to_csv(index=False)
    write(path, content.encode())


def leaderboard(path: Path) -> pd.DataFrame:
    """Return all attempts, the oldest first. Raises ValueError if the file is another one."""
    if not path.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    try:
        table = pd.read_csv(path)
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} must be a leaderboard, got a file that cannot be read ({error}); remove it"
        ) from None
    if list(table.columns) != list(COLUMNS):
        raise ValueError(
            f"{path} must be a leaderboard with the columns {list(COLUMNS)}, got "
            f"{list(table.columns)}; pass another path"
        )
    return table
