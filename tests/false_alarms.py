"""How often `sv.audit_sampling` calls a right decoder wrong, and how often it finds a distance.

    PYTHONPATH=tests:notebooks python -m false_alarms

In order: draws from the target's own distribution, of which all alarms are false; draws from a
distribution at the distance that the report promises to find; right decoders; planted faults.
"""

import argparse
import platform
import time
from functools import cache
from typing import Any

import numpy as np
import torch
import transformers
from decoders import FAULTY_SAMPLERS, RIGHT_SAMPLERS, Case
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2

import specviz as sv
from specviz.checks.sampling.arguments import make_prompts
from specviz.checks.sampling.evidence import price, smallest_distance
from specviz.checks.sampling.texts import Texts, enumerate_texts
from specviz.record.schema import Array

PROMPTS = make_prompts(6)
ALPHAS = (0.1, 0.01, 1e-6)
LENGTH = 3
RUNS = (40, 200)


@cache
def texts() -> Texts:
    pair = sv.tiny_pair()
    return enumerate_texts(pair.target, pair.draft, PROMPTS, LENGTH, 6, sv.SamplingParams(1.0))


def draw(runs: int, generator: np.random.Generator, distance: float = 0.0) -> list:
    """Draw texts from p, or with a first token at a distance from p."""
    known = texts()
    context = np.tile(known.starts(PROMPTS), (runs, 1))
    tokens = []
    for place in range(LENGTH):
        p = known.p[context]
        if place == 0 and distance:
            p = shifted(p[0], distance, generator)[None]
        token = (p.cumsum(2) < generator.random((runs, len(PROMPTS), 1))).sum(2)
        token = np.minimum(token, known.size - 1)
        tokens.append(token)
        context = known.longer[context, token]
    return np.stack(tokens, 2).tolist()


def shifted(p: Array, distance: float, generator: np.random.Generator) -> Array:
    """Return distributions (B, V) at a distance from p, in a direction at random."""
    found = []
    for row in p:
        while True:
            gains = generator.random(len(row)) < 0.5
            share = row[gains].sum()
            if distance < share < 1 - distance:
                break
        change = np.where(gains, distance / share, -distance / (1 - share))
        found.append(row * (1 + change))
    return np.stack(found)


def judge(outputs: list, alpha: float) -> sv.SamplingReport:
    return sv.audit_sampling(outputs, prompts=PROMPTS, alpha=alpha)


def of_draws(seeds: int) -> None:
    for runs in RUNS:
        alarms = dict.fromkeys(ALPHAS, 0)
        for seed in range(seeds):
            outputs = draw(runs, np.random.default_rng(seed))
            for alpha in ALPHAS:
                is_right = judge(outputs, alpha).is_right
                alarms[alpha] += not is_right
                if is_right:
                    break  # a smaller alpha calls it right, too
        told = ", ".join(f"{count} at alpha {alpha:g}" for alpha, count in alarms.items())
        print(f"draws from p, {runs} runs, {seeds} seeds: false alarms {told}", flush=True)


def of_distance(seeds: int) -> None:
    for runs in RUNS:
        distance = float(
            judge(draw(runs, np.random.default_rng(0)), 1e-6).reach["all_rows"].iloc[0]
        )
        found = 0
        for seed in range(seeds):
            outputs = draw(runs, np.random.default_rng(seed), distance)
            found += not judge(outputs, 1e-6).is_right
        print(f"distance {distance:.3f}, {runs} runs: found {found} of {seeds}", flush=True)


def audited(case: Case, **options: Any) -> sv.SamplingReport:
    def decode(target, draft, prompts, seed, max_new_tokens):
        how = {"temperature": 0.8, "seed": seed}
        return case.decode(target, draft, prompts, 2, max_new_tokens, **how)

    return sv.audit_sampling(decode, temperature=0.8, progress=False, **options)


def of_decoders(seeds: int, runs: int) -> None:
    for case in RIGHT_SAMPLERS:
        top_k = 2 if case.name.endswith("TopK") else None
        few = PROMPTS[:4] if case.name.endswith("CachedSampling") else PROMPTS
        alarms = dict.fromkeys(ALPHAS, 0)

        for seed in range(seeds):
            for alpha in ALPHAS:
                number = runs * len(PROMPTS) // len(few)
                report = audited(
                    case, seed=seed, runs=number, top_k=top_k, prompts=few, alpha=alpha
                )
                alarms[alpha] += not report.is_right
                if report.is_right:
                    break  # a smaller alpha calls it right, too
        told = ", ".join(f"{count} at alpha {alpha:g}" for alpha, count in alarms.items())
        print(f"{case.name}, {runs} runs, {seeds} seeds: false alarms {told}", flush=True)


def of_faults(seeds: int, runs: int) -> None:
    for case in FAULTY_SAMPLERS:
        top_k = 2 if case.name.endswith("ReportsOtherQ") else None
        found = in_texts = 0
        for seed in range(seeds):
            report = audited(case, seed=seed, runs=runs, top_k=top_k)
            found += not report.is_right
            in_texts += any(each.test not in ("drafts", "selection") for each in report.findings)
        print(
            f"{case.name}, {runs} runs: found {found} of {seeds}, in its texts {in_texts}",
            flush=True,
        )


def of_price() -> None:
    """Compare with a chi-square test of the same draws."""
    level = price("place", LENGTH) - np.log(1e-6)
    for runs in RUNS:
        ours = smallest_distance([runs] * len(PROMPTS), 6, level)
        freedom = 5 * len(PROMPTS)
        limit = chi2.isf(np.exp(-level), freedom)

        draws = runs * len(PROMPTS)

        def missed(distance, limit=limit, freedom=freedom, draws=draws):
            return ncx2.cdf(limit, freedom, 4 * draws * distance**2) - 0.01

        theirs = brentq(missed, 1e-4, 1)
        print(
            f"{runs} runs: distance {ours:.3f}, of a chi-square test {theirs:.3f}, which needs "
            f"{1 - (theirs / ours) ** 2:.0%} fewer draws for the same distance"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000, help="of draws without a decoder")
    parser.add_argument("--decoder-seeds", type=int, default=25, help="of each right decoder")
    parser.add_argument("--fault-seeds", type=int, default=5, help="of each planted fault")
    parser.add_argument(
        "--runs", type=int, default=32, help="of each decoder; faults with four times as many, too"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, numpy "
        f"{np.__version__}, {platform.machine()} CPU, {time.strftime('%Y-%m-%d')}"
    )
    of_price()
    of_draws(options.seeds)
    of_distance(options.seeds)
    of_decoders(options.decoder_seeds, options.runs)
    for runs in (options.runs, 4 * options.runs):
        of_faults(options.fault_seeds, runs)


if __name__ == "__main__":
    main()
