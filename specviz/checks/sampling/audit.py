"""`sv.audit_sampling`: judge a decoder that draws tokens by the distribution of what it draws."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from specviz.checks.sampling.arguments import (
    MOST_RUNS,
    Decode,
    DecodingTask,
    Run,
    check_alpha,
    check_dtypes,
    check_runs,
    check_size,
    check_source,
    checked_prompts,
    spread_counts,
)
from specviz.checks.sampling.causes import explain
from specviz.checks.sampling.evidence import price, smallest_distance
from specviz.checks.sampling.independence import judge_independence
from specviz.checks.sampling.outputs import judge_texts
from specviz.checks.sampling.pair import tiny_pair
from specviz.checks.sampling.report import SamplingReport
from specviz.checks.sampling.rounds import Seen
from specviz.checks.sampling.texts import Texts, collect, enumerate_texts
from specviz.checks.watch.arguments import check_models
from specviz.checks.watch.watched import eos_of, watch
from specviz.engine.models.compat import vocabulary_sizes
from specviz.engine.names import check_temperature
from specviz.engine.sampling import SamplingParams
from specviz.util.validate import require_bool, require_int

MOST_LENGTH = 64


def audit_sampling(
    decode: Decode | Sequence[Any] | Mapping[Any, int],
    target: PreTrainedModel | None = None,
    draft: PreTrainedModel | None = None,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int = 3,
    runs: int = 200,
    alpha: float = 1e-6,
    seed: int = 0,
    causes: bool = True,
    progress: bool = True,
) -> SamplingReport:
    """Judge whether a decoder draws from the target's distribution, and if not, say why.

    The decoder is called `runs` times on a target whose every text is known, so the chance of each
    text is computed, not estimated. What it drew is compared with that by position, prefix and row,
    and across rows and runs. With `causes`, `sv.watch` sees the forwards: whether drafts are drawn
    from the q that judges them, and whether verifying a draft depends on that draft.

    ```python
    def my_decode(target, draft, prompts, seed, max_new_tokens):
        ...  # returns the new tokens of each prompt
    print(sv.audit_sampling(my_decode, temperature=0.8))
    ```

    Args:
        decode: the decoder, called with these five arguments in this order. Or what it drew: a list
            of runs, each with the new tokens of each prompt; or for one prompt {tokens: count}.
        target, draft: models over a small vocabulary; None for those of `sv.tiny_pair()`. With a
            target of your own, None for `draft` means that there is none.
        temperature, top_k, top_p: how the decoder draws, as in `SamplingParams`. Its draft model
            may have another temperature, which is estimated.
        prompts: token ids of each row, None for sixteen prompts of two to five tokens.
        max_new_tokens: T; all texts up to this length are enumerated.
        runs: how often the decoder is called, each time with another seed.
        alpha: the chance that a right decoder is called wrong, at most, over all tests together.
        seed: of the seeds.
        causes: whether the forwards are seen, which takes about twice the time.
        progress: whether to show a bar.

    Raises:
        ValueError: an argument cannot be used, or the decoder returns something else.
    """
    source = check_source(decode)
    for name, flag in (("causes", causes), ("progress", progress)):
        require_bool(name, flag)
    check_temperature(temperature, greedy="; greedy decoders are judged by specviz.watch")
    params = SamplingParams(temperature, top_k, top_p)
    length = require_int("max_new_tokens", max_new_tokens, maximum=MOST_LENGTH)
    alpha = check_alpha(alpha)
    seed = require_int("seed", seed, minimum=0)
    count = require_int("runs", runs, maximum=MOST_RUNS)
    if target is None:
        pair = tiny_pair()
        target, draft = pair.target, pair.draft if draft is None else draft
    check_models(target, draft, None)
    check_dtypes(target, draft)
    size = min(vocabulary_sizes(target, target if draft is None else draft))
    checked = checked_prompts(prompts, size, causes and source == "decoder")
    check_size(checked, size, length)
    task = DecodingTask(target, draft, checked, length, size, eos_of(target))
    seen = Seen(size)
    if source == "decoder":
        check_runs(count, task, alpha)
        outputs = _run(decode, task, count, seed, seen if causes else None, progress)
    else:
        outputs = _drawn(decode, source, task, seed)
        check_runs(len(outputs), task, alpha)
    return _judge(task, params, outputs, seen, alpha, ordered=source != "counts")


def _run(
    decode: Any, task: DecodingTask, count: int, seed: int, seen: Seen | None, progress: bool
) -> list[Run]:
    """Return what the decoder draws with `count` seeds, and note in `seen` how."""
    seeds = np.random.default_rng(seed).choice(2**31, size=count, replace=False).tolist()
    outputs = []
    with nullcontext() if seen is None else watch(task.target, task.draft) as watched:
        for run, number in enumerate(tqdm(seeds, desc="audit", unit="run", disable=not progress)):
            prompts = [list(prompt) for prompt in task.prompts]
            given = decode(task.target, task.draft, prompts, number, task.length)
            outputs.append(task.checked_run("decode", given))
            if watched is not None and seen is not None:
                seen.read(run, watched.forwards, task.prompts, outputs[-1])
                watched.forwards.clear()
    return outputs


def _drawn(decode: Any, source: str, task: DecodingTask, seed: int) -> list[Run]:
    """Return runs that were drawn elsewhere."""
    if source == "counts":
        if len(task.prompts) != 1:
            raise ValueError(
                f"prompts must be one where decode is a dict of counts, got {len(task.prompts)}; "
                "pass a list of runs for several prompts"
            )
        decode = spread_counts(decode, seed)
    return [task.checked_run(f"decode[{i}]", run) for i, run in enumerate(decode)]


def _judge(
    task: DecodingTask,
    params: SamplingParams,
    outputs: list[Run],
    seen: Seen,
    alpha: float,
    ordered: bool,
) -> SamplingReport:
    """Compare what was drawn with what the target would draw."""
    rows = len(task.prompts)
    texts = enumerate_texts(task.target, task.draft, task.prompts, task.length, task.size, params)
    draws = collect(outputs, task.prompts, texts)
    findings = judge_texts(draws, texts, rows, alpha)
    if ordered:
        findings += judge_independence(draws, texts, len(outputs), rows, alpha)
    causes: list[str] = []
    facts = [seen.why_unknown()] if seen.why_unknown() else []
    # Where runs repeat each other, there is nothing to learn from their forwards.
    if not facts and not any(each.test == "runs" for each in findings):
        causes, facts, more = explain(seen, params, bool(findings), alpha)
        findings += more
    return SamplingReport(
        findings=sorted(findings, key=lambda each: -each.log_evidence),
        causes=causes,
        facts=facts,
        reach=_reach(texts, task.prompts, len(outputs), alpha),
        texts=len(outputs) * rows,
        alpha=alpha,
    )


def _reach(texts: Texts, prompts: Sequence[Sequence[int]], runs: int, alpha: float) -> pd.DataFrame:
    """Return what so many draws find, by new token."""
    level = -math.log(alpha)
    rows = Counter(tuple(prompt) for prompt in prompts)
    all_visits = texts.chances() * runs * [rows[prompt] for prompt, _ in texts.prefixes]
    is_first = np.array([prompt == texts.prefixes[0][0] for prompt, _ in texts.prefixes])
    of_row = texts.chances() * runs * is_first
    entries = []
    for at in range(texts.length):
        visits = all_visits[texts.place == at]
        entry = {
            "new_token": at + 1,
            "draws": round(float(visits.sum())),
            "prefixes": int((visits > 0).sum()),
            "all_rows": smallest_distance(visits, texts.size, level + price("place", texts.length)),
            "one_row": smallest_distance(
                of_row[texts.place == at],
                texts.size,
                level + price("row", texts.length * len(prompts)),
            ),
        }
        entries.append(entry)
    return pd.DataFrame(entries).set_index("new_token")
