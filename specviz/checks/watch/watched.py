"""`sv.watch`: judge a decoder that knows nothing of this library.

    with sv.watch(target, draft) as watched:
        texts = my_decode(target, draft, prompts)
    print(watched.audit(prompts, texts))
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from transformers import PreTrainedModel

from specviz.checks.watch.capture import AttentionReader, Capture, Forward
from specviz.checks.watch.costs import find_costs
from specviz.checks.watch.diagnose import Fault, Judge, Tie
from specviz.checks.watch.drafts import DraftFollower
from specviz.checks.watch.follow import TargetFollower
from specviz.checks.watch.fresh import read_at_once, tolerance_of
from specviz.checks.watch.repair import Bench
from specviz.checks.watch.report import WatchReport

SAMPLE = 4  # texts in which noise is measured


@dataclass
class Watched:
    """What was seen of a decoder.

    Attributes:
        forwards: all forwards of both models, in order.
    """

    target: PreTrainedModel
    draft: PreTrainedModel | None
    tokenizer: Any = None
    forwards: list[Forward] = field(default_factory=list, repr=False)

    def audit(
        self,
        prompts: Sequence[str | Sequence[int]],
        outputs: Sequence[str | Sequence[int]] | None = None,
        *,
        greedy: bool = True,
        max_new_tokens: int | None = None,
        eos_token_ids: Sequence[int] | None = None,
    ) -> WatchReport:
        """Judge what was seen."""
        ids = [self._ids(prompt) for prompt in prompts]
        known: list[list[int] | None] = [None] * len(ids)
        if outputs is not None:
            known = [None if isinstance(output, str) else list(output) for output in outputs]
        follower = TargetFollower(ids, known)
        for forward in self.forwards:
            if forward.model == "target":
                follower.read(forward)
        follower.finish()
        drafts = DraftFollower(follower.requests)
        for forward in self.forwards:
            if forward.model == "draft":
                drafts.read(forward)
        return self._judged(follower, drafts, greedy)

    def _judged(
        self, follower: TargetFollower, drafts: DraftFollower, greedy: bool
    ) -> WatchReport:
        requests = follower.requests
        sample = sorted(requests, key=lambda request: -len(request.tokens))[:SAMPLE]
        rows = [(request.tokens, read_at_once(self.target, request.tokens)) for request in sample]
        tolerance = tolerance_of(self.target, rows)
        numbers = sorted(
            {verified.part.number for request in requests for verified in request.rounds}
        )
        rounds = {number: i for i, number in enumerate(numbers)}
        by_number = {forward.number: forward for forward in self.forwards}
        bench = Bench(self.target, by_number, follower.origins.where, follower.labels)
        judge = Judge(bench, follower.parts, rounds, tolerance, greedy)
        faults: list[Fault] = []
        ties: list[Tie] = []
        for number, request in enumerate(requests):
            fresh = read_at_once(self.target, request.tokens)
            fault, near = judge.judge(number, request, fresh)
            ties += near
            if fault is not None:
                faults.append(fault)
        faults.sort(key=lambda fault: (fault.forward, fault.row))
        costs = find_costs(requests, drafts.faults)
        return WatchReport(requests, faults, ties, costs, tolerance, rounds)

    def _ids(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt).input_ids)
        return [int(token) for token in prompt]


@contextmanager
def watch(
    target: PreTrainedModel, draft: PreTrainedModel | None = None, *, tokenizer: Any = None
) -> Iterator[Watched]:
    """See every forward of these models inside the block."""
    watched = Watched(target, draft, tokenizer)
    lock = Lock()
    captures = [Capture(target, "target", watched.forwards, lock)]
    if draft is not None:
        captures.append(Capture(draft, "draft", watched.forwards, lock))
    reader = AttentionReader(captures)
    reader.open()
    try:
        for capture in captures:
            capture.open()
        yield watched
    finally:
        for capture in captures:
            capture.close()
        reader.close()
