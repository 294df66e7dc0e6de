"""Lossless sampling: distribution against enumeration, token identity, arithmetic in plain Python.

Seeds are fixed, so every test gives one and the same result on one machine. Stated odds of false
failure are those over seeds.
"""

import copy
import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from conftest import check_refusal, generate, make_pair, make_prompts
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import specviz as sv
from specviz.engine import sampling
from specviz.engine.draft import Draft
from specviz.engine.names import COUPLINGS
from specviz.engine.rng import CHILDREN, TARGET, Noise, unit
from specviz.engine.sampling import Chooser, Places, Random, draw, residual
from specviz.engine.strategies import STRATEGIES, Strategy

each_coupling = pytest.mark.parametrize("coupling", COUPLINGS)
# A row's rounds depend on its neighbours under rollback alone.
SAME_ROUNDS = ("masking", "eqspec", "exspec", "inplace", "repadding")
SPECULATIVE = ("rollback", *SAME_ROUNDS)
VALID_OPTIONS = {"repadding": {"ones_mask": False, "draft_bonus": False}}


def make_strategy(name: str, **options: Any) -> Strategy:
    """The strategy with options that make it valid."""
    return sv.strategy(name, **options | VALID_OPTIONS.get(name, {}))


def test_every_valid_strategy_is_sampled_here():
    assert {"autoregressive", *SPECULATIVE} == set(STRATEGIES)
    assert all(make_strategy(name).promises for name in STRATEGIES)


# ---- the distribution of what is emitted ----

V, PROMPT, NEW_TOKENS, COPIES = 6, [1, 2], 3, 2000
WARM = {"temperature": 1.3}


@functools.cache
def make_tiny() -> sv.Pair:
    """Two Llamas over six tokens that differ a lot, in float64; token 5 ends a row."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    ids = {"vocab_size": V, "eos_token_id": 5, "bos_token_id": 0, "pad_token_id": 0}
    config = LlamaConfig(max_position_embeddings=64, initializer_range=0.5, **sizes, **heads, **ids)
    torch.manual_seed(1)
    target, other = LlamaForCausalLM(config).double(), LlamaForCausalLM(config).double()
    draft = copy.deepcopy(target)
    with torch.no_grad():
        for mine, theirs in zip(draft.parameters(), other.parameters(), strict=True):
            mine += 0.8 * theirs if mine.ndim > 1 else 0
    return sv.Pair(target, draft)


def probabilities(
    params: sv.SamplingParams, prefix: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield all outputs of up to three tokens with the target's probability, by the chain rule."""
    if len(prefix) == NEW_TOKENS or prefix[-1:] == (5,):
        yield prefix, 1.0
        return
    with torch.no_grad():
        said = make_tiny().target(torch.tensor([[*PROMPT, *prefix]])).logits[0, -1]
    for token, chance in enumerate(params.distribution(said).tolist()):
        if chance > 0:
            yield from (
                (row, chance * rest) for row, rest in probabilities(params, (*prefix, token))
            )


@functools.cache
def sample(strategy: str, coupling: str, k: int, **options: Any) -> list[list[int]]:
    """Return the outputs of many copies of a prompt; each has its own place, so its own noise."""
    batch_size = 1000
    copies = COPIES
    if strategy == "rollback":  # the smallest of a thousand acceptances is always zero
        batch_size = 5
        copies = 600
    return generate(
        make_tiny(),
        [PROMPT] * copies,
        strategy=make_strategy(strategy, **({"window": 1000} if strategy == "exspec" else {})),
        num_draft_tokens=k,
        batch_size=batch_size,
        max_new_tokens=NEW_TOKENS,
        sampling=sv.SamplingParams(coupling=coupling, **options or WARM),
        seed=7,
    ).tokens


def chi_square(rows: Sequence[Sequence[int]], params: sv.SamplingParams) -> tuple[float, float]:
    """Return Pearson's statistic of `rows`, and the value it exceeds with probability below 1e-6.

    For a chi-square variable of n degrees of freedom P(X >= n + 2 sqrt(n x) + 2 x) <= exp(-x)
    (Laurent and Massart 2000).
    """
    expected = {row: len(rows) * chance for row, chance in probabilities(params)}
    found = Counter(map(tuple, rows))
    assert found.keys() <= expected.keys(), "a row was emitted that the target cannot say"
    cells = [(found[row], mean) for row, mean in expected.items() if mean >= 5]
    # Cells with fewer than five rows expected count as one: Pearson's statistic needs it.
    small = [(found[row], mean) for row, mean in expected.items() if mean < 5]
    cells.append((sum(count for count, _ in small), sum(mean for _, mean in small)))
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells if mean > 0)
    n, x = len(cells) - 1, math.log(1e6)
    return statistic, n + 2 * math.sqrt(n * x) + 2 * x


def check_distribution(rows: Sequence[Sequence[int]], coupling: str, **options: Any):
    statistic, limit = chi_square(rows, sv.SamplingParams(coupling=coupling, **options or WARM))
    assert statistic < limit


def test_the_enumeration_is_one_worth_testing_against():
    chances = dict(probabilities(sv.SamplingParams(**WARM)))
    assert sum(chances.values()) == pytest.approx(1)
    # Three tokens without an EOS before the last, or an EOS earlier: each is possible.
    assert len(chances) == 5**3 + 5**2 + 5 + 1
    assert len([chance for chance in chances.values() if chance * COPIES >= 5]) > 30


# Strategies that emit the same tokens need one look at their distribution; those tests follow.
@pytest.mark.sweep(18)
@pytest.mark.parametrize(
    ("strategy", "coupling", "k"),
    [
        ("autoregressive", "rejection", 1),
        ("autoregressive", "gumbel", 1),
        ("inplace", "rejection", 1),
        ("inplace", "rejection", 2),
        ("inplace", "rejection", 3),
        ("rollback", "rejection", 2),
    ],
)
def test_what_is_emitted_is_what_the_target_would_say(strategy, coupling, k):
    """Odds of false failure: 6e-6 in all."""
    check_distribution(sample(strategy, coupling, k), coupling)


@pytest.mark.slow
def test_under_gumbel_every_strategy_and_k_emits_the_same_tokens():
    """In float64 a near tie that falls otherwise has odds of about 1e-9."""
    expected = sample("autoregressive", "gumbel", 1)
    for number, strategy in enumerate(SPECULATIVE):
        found = sample(strategy, "gumbel", 1 + number % 3)
        assert found == expected[: len(found)], strategy


def test_under_gumbel_padding_does_not_change_a_sample():
    pair = make_pair("llama")
    params = sv.SamplingParams(1.0, coupling="gumbel")
    run = {"batch_size": 3, "num_draft_tokens": 2, "max_new_tokens": 8, "sampling": params}
    expected = generate(pair, make_prompts(), strategy="autoregressive", **run).tokens
    for strategy in ("masking", "eqspec", "inplace"):
        assert generate(pair, make_prompts(), strategy=strategy, **run).tokens == expected, strategy


@pytest.mark.slow
def test_under_rejection_strategies_with_the_same_rounds_emit_the_same_tokens():
    for number, strategy in enumerate(SAME_ROUNDS):
        k = 1 + number % 3
        assert sample(strategy, "rejection", k) == sample("inplace", "rejection", k), strategy
    assert sample("inplace", "rejection", 1) != sample("inplace", "rejection", 3)


@pytest.mark.sweep(4)
@each_coupling
@pytest.mark.parametrize(
    "options",
    [{"temperature": 0.8, "top_k": 3}, {"temperature": 1.5, "top_p": 0.8}],
    ids=["top_k", "top_p"],
)
def test_warped_distributions_are_emitted_too(coupling, options):
    """Odds of false failure: 4e-6 in all."""
    assert len(dict(probabilities(sv.SamplingParams(**options)))) < 156
    check_distribution(sample("inplace", coupling, 2, **options), coupling, **options)


def test_proposals_without_a_distribution_leave_it_as_it_is():
    """Prompt lookup proposes what it proposes with certainty. Odds of false failure: 1e-6."""
    run = {"num_draft_tokens": 2, "batch_size": 1000, "max_new_tokens": NEW_TOKENS}
    params = sv.SamplingParams(**WARM)
    result = generate(make_tiny(), [PROMPT] * COPIES, drafter="lookup", sampling=params, **run)
    assert 0.05 < result.summary["draft_acceptance_rate"].item() < 0.95
    check_distribution(result.tokens, "rejection")


def one_number_for_all(original: Any) -> Any:
    return lambda self, *place: original(self, *place)[:, [0, 0, 0]]


def one_noise_for_all_places(original: Any) -> Any:
    return lambda self, request, index, size: original(self, request, 0, size)


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("coupling", "place", "name", "wrong"),
    [
        ("rejection", sampling, "residual", lambda _: lambda p, q: p),
        ("rejection", sampling, "residual", lambda _: lambda p, q: (p - q).abs()),
        ("rejection", Noise, "uniforms", one_number_for_all),
        ("gumbel", Noise, "gumbel", one_noise_for_all_places),
    ],
    ids=[
        "drawn from p after a rejection",
        "drawn from |p - q|",
        "one number for draft and acceptance",
        "one noise for all places",
    ],
)
def test_what_is_wrong_fails_by_far(coupling, place, name, wrong, monkeypatch):
    monkeypatch.setattr(place, name, wrong(getattr(place, name)))
    statistic, limit = chi_square(
        sample.__wrapped__("inplace", coupling, 2), sv.SamplingParams(coupling=coupling, **WARM)
    )
    assert statistic > 3 * limit


# ---- token identity ----


def texts(
    pair: sv.Pair, strategy: str, params: sv.SamplingParams, batch_size: int, k: int, **more: Any
) -> list[list[int]]:
    """Return outputs for the ten prompts, with budgets of 24 and 12; many end earlier, at EOS."""
    run = {"batch_size": batch_size, "num_draft_tokens": k, "max_new_tokens": [24, 12] * 5}
    static = more.pop("static", False) and strategy != "exspec"
    chosen = make_strategy(strategy, **({"refill": False} if static else {}))
    return generate(
        pair, make_prompts(), strategy=chosen, sampling=params, seed=2, **run, **more
    ).tokens


@functools.cache
def sampled_alone(strategy: str, params: sv.SamplingParams) -> list[list[int]]:
    found = texts(pair_for(params), strategy, params, 1, 4)
    assert {len(row) for row in found} > {24, 12}
    return found


def pair_for(params: sv.SamplingParams) -> sv.Pair:
    """Return the pair of each coupling, so that two classes are sampled."""
    return make_pair("qwen3" if params.coupling == "gumbel" else "llama", torch.float64)


# temperature and filters, batch size, K, other options
SAMPLED = (
    ({"temperature": 0.7}, 1, 3, {}),
    ({"temperature": 1.0, "top_k": 5}, 3, 5, {"drafter": "lookup"}),
    ({"temperature": 1.5, "top_p": 0.8}, 4, 2, {"static": True}),
    ({"temperature": 1.0, "top_k": 9, "top_p": 0.9}, 10, 5, {}),
)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sampled_text_depends_on_neither_batch_nor_strategy(strategy):
    """Each strategy with two of the settings; under rejection with the K of its reference."""
    first = list(STRATEGIES).index(strategy) % 2
    for options, batch_size, k, more in SAMPLED[first::2]:
        params = sv.SamplingParams(coupling="gumbel", **options)
        expected = sampled_alone("autoregressive", params)
        assert texts(pair_for(params), strategy, params, batch_size, k, **more) == expected, options
        if strategy in SAME_ROUNDS and "drafter" not in more:
            params = sv.SamplingParams(**options)
            expected = sampled_alone("inplace", params)
            assert texts(pair_for(params), strategy, params, batch_size, 4, **more) == expected


@pytest.mark.slow
def test_under_rejection_another_k_draws_other_numbers():
    params = sv.SamplingParams(0.7)
    other = texts(make_pair("llama", torch.float64), "inplace", params, 1, 2)
    assert other != sampled_alone("inplace", params)


@pytest.mark.sweep(2)
@each_coupling
def test_a_text_depends_on_seed_and_place_alone(coupling, prompts):
    params = sv.SamplingParams(1.5, coupling=coupling)

    def run(some: list[list[int]], seed: int) -> list[list[int]]:
        options = {"sampling": params, "seed": seed, "batch_size": 2, "max_new_tokens": 8}
        return generate(make_pair("llama", torch.float64), some, **options).tokens

    prompts = prompts[:4]
    expected = run(prompts, 0)
    assert run(prompts, 0) == expected
    assert run([*prompts[:2], [9, 9]], 0)[:2] == expected[:2]
    same = run([prompts[3]] * 4, 0)
    assert len(set(map(tuple, same))) == 4
    assert same[3] == expected[3]
    others = [run(prompts, seed) for seed in (1, 2**64, 2**64 + 1, 10**40)]
    assert len({str(tokens) for tokens in [expected, *others]}) == 5


@pytest.mark.sweep(2)
@each_coupling
def test_a_temperature_near_zero_is_greedy(coupling):
    """The prompt whose embedding is zero is left out: there all tokens are equally likely."""
    pair = make_pair("llama", torch.float64)
    prompts = [prompt for prompt in make_prompts() if prompt != [0]]
    params = sv.SamplingParams(1e-5, coupling=coupling)
    greedy, cold = (
        generate(pair, prompts, max_new_tokens=16, sampling=each) for each in (None, params)
    )
    assert cold.tokens == greedy.tokens
    assert np.array_equal(cold.rows["accepted"], greedy.rows["accepted"])


@pytest.mark.gpu
@each_coupling
def test_another_device_samples_the_same_text(coupling):
    """All but one: after the prompt [0] all logits are equal, and top-p keeps any of them."""
    params = sv.SamplingParams(1.0, top_p=0.95, coupling=coupling)
    ours, theirs = (
        texts(make_pair("llama", torch.float64, device), "inplace", params, 4, 5)
        for device in ("cpu", "cuda")
    )
    tied = make_prompts().index([0])
    del ours[tied], theirs[tied]
    assert ours == theirs


def test_a_device_without_float64_is_refused(pair, monkeypatch):
    monkeypatch.setattr(sv.Pair, "device", torch.device("mps"))
    check_refusal(
        lambda: generate(pair, [[1]], sampling=sv.SamplingParams(1.0)),
        "pair.device must have float64 for sampling, got mps; load the pair with",
    )


# ---- what is recorded ----


@pytest.mark.sweep(2)
@each_coupling
def test_a_record_holds_what_the_models_said_before_warping(coupling, tmp_path):
    pair = make_pair("llama")
    params = sv.SamplingParams(np.float32(0.5), top_k=np.int64(20), coupling=coupling)
    run = {"batch_size": 3, "num_draft_tokens": 4, "max_new_tokens": 8, "sampling": params}
    plain, kept = (
        generate(pair, make_prompts(), seed=5, record=record, **run) for record in (False, True)
    )
    assert plain.tokens == kept.tokens
    trace = kept.trace
    told = {"temperature": 0.5, "top_k": 20, "top_p": None, "coupling": coupling}
    assert (trace.meta["sampling"], trace.meta["seed"]) == (told, 5)
    trace.save(tmp_path / "run.safetensors")
    assert sv.Trace.load(tmp_path / "run.safetensors").meta == trace.meta
    rows, surprises = trace.rows, 0
    for i, (request, n, gained) in enumerate(
        zip(rows["request"], rows["length"], rows["gained"], strict=True)
    ):
        text = (trace.prompt(request) + trace.output(request))[:n]
        fed = torch.tensor([[*text, *rows["drafts"][i].tolist()]])
        with torch.no_grad():
            said = {
                name: getattr(pair, name)(fed).logits[0, n - 1 :].log_softmax(-1)
                for name in ("target", "draft")
            }
        for name, log_p in said.items():
            expected = log_p[:4].gather(1, fed[0, n:, None])[:, 0]
            np.testing.assert_allclose(rows[f"{name}_logprob"][i], expected, atol=1e-4)
            width = rows[f"{name}_top_logprobs"].shape[1]
            np.testing.assert_allclose(
                rows[f"{name}_top_logprobs"][i], log_p[:width].topk(5).values, atol=1e-4
            )
        surprises += sum(rows["emitted"][i, :gained] != rows["target_top_ids"][i, :gained, 0])
    assert surprises > 5  # a draw is not always the most likely token


# ---- parameters, noise, and the arithmetic ----

GOLDEN_UNIFORMS = [0.46410376207644755, 0.6806847721100925, 0.9177656911879312]
GOLDEN_GUMBEL = [1.079902251091142, 1.5563321315549907]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_logits_are_warped_as_generate_warps_them(name):
    model, prompt = make_pair(name).target, torch.tensor([[3, 1, 4]])
    for options in (
        {"temperature": 0.6, "top_k": 7, "top_p": 0.8},
        {"temperature": 1.4, "top_k": 500, "top_p": 1.0},
    ):
        outputs = {"output_logits": True, "output_scores": True, "return_dict_in_generate": True}
        run = {"attention_mask": torch.ones_like(prompt), "do_sample": True, "max_new_tokens": 4}
        out = model.generate(prompt, **run, **outputs, **options)
        for logits, scores in zip(out.logits, out.scores, strict=True):
            assert torch.equal(sv.SamplingParams(**options).warp(logits.double()), scores)


@pytest.mark.parametrize("seed", [0, 9, 2**70 + 5])
def test_the_noise_of_single_tokens_is_that_of_the_whole_vocabulary(seed: int) -> None:
    """To the bit, although it is computed another way."""
    noise = Noise(seed)
    requests = np.array([0, 3, 2**20])
    indices = np.array([1, 500, 2])
    ids = np.array([[0, 1, 2, 3], [4, 7, 8, 149_999], [96, 0, 0, 5]])
    found = noise.gumbel_at(requests, indices, ids)
    for row, (request, index) in enumerate(zip(requests, indices, strict=True)):
        whole = noise.gumbel(int(request), int(index), 150_000)
        assert np.array_equal(found[row], whole[ids[row]])


def test_noise_is_a_function_of_seed_prompt_and_index():
    noise = Noise(3)
    many = noise.uniforms(5, 10, 6)
    assert many.shape == (6, 3)
    assert np.array_equal(noise.uniforms(5, 12, 2), many[2:4])  # however many are asked for at once
    assert np.array_equal(Noise(3).uniforms(5, 10, 6), many)
    gumbel = noise.gumbel(5, 10, 1000)
    assert np.array_equal(noise.gumbel(5, 10, 10), gumbel[:10])
    others = [
        noise.uniforms(5, 0, 9),
        noise.uniforms(6, 10, 9),
        Noise(4).uniforms(5, 10, 9),
        noise.gumbel(5, 11, 99),
        noise.gumbel(6, 10, 99),
    ]
    numbers = np.concatenate([drawn.ravel() for drawn in (many, gumbel, *others)])
    assert len(np.unique(numbers)) == len(numbers)


def test_noise_is_the_same_on_every_machine_and_release():
    """A changed stream would silently change every seeded text."""
    assert Noise(0).uniforms(0, 0, 1)[0].tolist() == GOLDEN_UNIFORMS
    assert Noise(10**30).gumbel(2, 7, 2).tolist() == pytest.approx(GOLDEN_GUMBEL, rel=1e-12)


def test_no_number_is_zero_or_one():
    numbers = unit(np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64))
    assert (numbers > 0).all()
    assert (numbers < 1).all()
    assert np.isfinite(-np.log(-np.log(numbers))).all()


def plain_draw(weights: Sequence[float], u: float) -> int:
    threshold, total = u * math.fsum(weights), 0.0
    for token, weight in enumerate(weights):
        total += weight
        if total > threshold:
            return token
    raise AssertionError("the last token is reached by the full sum")


def odd(n: int) -> float:
    """(2n + 1) / 2018: never a ratio of small numbers, so that no comparison is a tie."""
    return (2 * n + 1) / 2018


unit_numbers = st.integers(0, 1008).map(odd)


def draw_one(weights: Sequence[float], u: float) -> int:
    return draw(
        torch.tensor([weights], dtype=torch.float64), torch.tensor([u], dtype=torch.float64)
    ).item()


@pytest.mark.parametrize("u", [2.0**-53, 0.5, 1 - 2.0**-53])
@pytest.mark.parametrize(
    "weights",
    [
        [0.0, 1.0, 0.0],
        [0.0] * 5 + [1e-300, 0.0],
        [0.1] * 10 + [0.0],
        [0.0, 1 / 3, 1 / 3, 1 / 3, 0.0],
        [1.0, 1e-20, 0.0],
        [5e-324, 0.0],
    ],
)
def test_rounding_never_draws_what_has_no_weight(weights, u):
    assert weights[draw_one(weights, u)] > 0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6).filter(any), st.data())
def test_the_residual_is_never_empty(weights, data):
    p = torch.tensor([weights], dtype=torch.float64)
    q = torch.tensor(
        [data.draw(st.lists(st.floats(0, 1), min_size=len(weights), max_size=len(weights)))],
        dtype=torch.float64,
    )
    for other in (p, q, p.clone().mul_(1 + 2**-52)):
        rest = residual(p, other)
        assert rest.sum() > 0
        assert ((rest == 0) | (p > 0)).all()
    assert torch.equal(residual(p, torch.zeros_like(p)), p)  # the bonus


class FixedNoise(Noise):
    """Noise with given values: uniforms (B, K+1, 3) by prompt."""

    def __init__(self, uniforms: Sequence[Any]):
        self.values = np.array(uniforms)

    def uniforms(self, request: int, index: int, count: int, child: int = 0) -> np.ndarray:
        return self.values[request, index : index + count]

    def gumbel(self, request: int, index: int, size: int, purpose: int = 1) -> np.ndarray:
        return self.values[request, index, :size]


def make_chooser(coupling: str, noise: Noise, **options: Any) -> Chooser:
    chooser = sv.SamplingParams(coupling=coupling, **{"temperature": 1.0} | options).chooser(0)
    chooser._random.noise = noise  # type: ignore[attr-defined]
    return chooser


def at_start(rows: int) -> Places:
    return Places(torch.arange(rows), torch.zeros(rows, dtype=torch.long))


def softmax(logits: Sequence[float]) -> list[float]:
    weights = [math.exp(logit) for logit in logits]
    return [weight / math.fsum(weights) for weight in weights]


def plain_rejection(
    drafts: list[int],
    draft_logits: list[list[float]] | None,
    logits: list[list[float]],
    uniforms: list[list[float]],
) -> tuple[int, list[int]]:
    """Accepted, and the accepted drafts with the token after them, for one row, number by number.

    No token after them where p and q are equal, so that nothing but rounding is left: that happens
    if the draft itself cannot say d.
    """
    size = len(logits[0])
    for j, d in enumerate(drafts):
        p = softmax(logits[j])
        q = [float(v == d) for v in range(size)]  # proposed with certainty
        if draft_logits is not None:
            q = softmax(draft_logits[j])
        if uniforms[j][1] * q[d] >= p[d]:
            rest = [max(x - y, 0.0) for x, y in zip(p, q, strict=True)]
            drawn = [plain_draw(rest, uniforms[j][2])] if sum(rest) > 1e-9 else []
            return j, [*drafts[:j], *drawn]
    bonus = plain_draw(softmax(logits[-1]), uniforms[-1][2])
    return len(drafts), [*drafts, bonus]


def to_tensor(rows: Sequence[Sequence[Sequence[float]]], size: int) -> Tensor:
    return torch.tensor(rows, dtype=torch.float32).reshape(len(rows), -1, size)


@st.composite
def rounds(draw_: st.DrawFn) -> tuple[int, list[Any], list[Any] | None, list[Any], list[Any]]:
    """V, drafts (B, K), draft logits or None, logits (B, K+1, V), uniforms (B, K+1, 3)."""
    B, K, size = draw_(st.integers(1, 3)), draw_(st.integers(0, 3)), draw_(st.integers(2, 5))

    def matrix(entry: st.SearchStrategy[Any], *shape: int) -> Any:
        return [matrix(entry, *shape[1:]) for _ in range(shape[0])] if shape else draw_(entry)

    logit = st.sampled_from([-math.inf, 0.0, 0.5, 1.0, 2.0])
    row = st.lists(logit, min_size=size, max_size=size).filter(
        lambda values: max(values) > -math.inf
    )
    drawn = matrix(row, B, K) if draw_(st.booleans()) else None
    return (
        size,
        matrix(st.integers(0, size - 1), B, K),
        drawn,
        matrix(row, B, K + 1),
        matrix(unit_numbers, B, K + 1, 3),
    )


@given(rounds())
def test_rejection_agrees_with_plain_python(drawn):
    """Drafts with p = 0 or even q = 0 are among them, and p equal to q."""
    size, drafts, draft_logits, logits, uniforms = drawn
    B = len(drafts)
    said = None if draft_logits is None else to_tensor(draft_logits, size)
    accepted, emitted, _ = make_chooser("rejection", FixedNoise(uniforms)).judge(
        Draft(torch.tensor(drafts, dtype=torch.long), said), to_tensor(logits, size), at_start(B)
    )
    assert emitted.dtype == accepted.dtype == torch.int64
    assert emitted.shape == (B, len(logits[0]))
    for i in range(B):
        a, expected = plain_rejection(
            drafts[i], draft_logits and draft_logits[i], logits[i], uniforms[i]
        )
        assert accepted[i] == a
        assert emitted[i, : len(expected)].tolist() == expected
        assert logits[i][a][emitted[i, a]] > -math.inf


def test_each_row_draws_its_bonus_where_its_own_drafts_end() -> None:
    """The target is certain of its tokens. Both drafts of row 0 are right, none of row 1."""
    logits = 100.0 * torch.nn.functional.one_hot(torch.tensor([[1, 2, 3], [4, 5, 6]]), 7)
    chooser = make_chooser("rejection", FixedNoise([[[0.5] * 3] * 3] * 2))
    drafts = torch.tensor([[1, 2], [0, 0]])
    accepted, emitted, _ = chooser.judge(Draft(drafts), logits, at_start(2))
    assert accepted.tolist() == [2, 0]
    assert (emitted[0].tolist(), int(emitted[1, 0])) == ([1, 2, 3], 4)


@given(rounds())
def test_gumbel_agrees_with_plain_python(drawn):
    size, drafts, _, logits, _ = drawn
    B, width = len(drafts), len(logits[0])
    noise = np.random.default_rng(size).gumbel(size=(B, width, size))
    chooser = make_chooser("gumbel", FixedNoise(noise))
    accepted, emitted, _ = chooser.judge(
        Draft(torch.tensor(drafts, dtype=torch.long)), to_tensor(logits, size), at_start(B)
    )
    for i in range(B):
        said = [
            max(range(size), key=lambda v: logits[i][j][v] + noise[i, j, v]) for j in range(width)
        ]
        agreed = [draft == token for draft, token in zip(drafts[i], said, strict=False)]
        assert emitted[i].tolist() == said
        assert accepted[i] == [*agreed, False].index(False)


def test_gumbel_draws_each_noise_once_and_keeps_no_more_than_a_round(monkeypatch):
    asked = []
    original = Noise.gumbel

    def counted(self: Noise, request: int, index: int, size: int) -> np.ndarray:
        asked.append((request, index))
        return original(self, request, index, size)

    monkeypatch.setattr(Noise, "gumbel", counted)
    pair, params = make_pair("llama"), sv.SamplingParams(1.0, coupling="gumbel")
    run = {"num_draft_tokens": 3, "batch_size": 2, "max_new_tokens": 16, "sampling": params}
    for event in sv.decode(pair, make_prompts()[:4], **run):
        assert len(event.state.chooser._random._drawn) <= 2 * 2 * 4  # type: ignore[attr-defined]
    assert len(asked) == len(set(asked)) > 0


# ---- how many drafts are accepted ----


@pytest.mark.sweep(2)
@pytest.mark.parametrize("distance", [0.0, 1.0])
def test_acceptance_is_what_the_total_variation_allows(distance):
    """Rejection 1 - TV, gumbel from (1 - TV) / (1 + TV) to 1 - TV, within 0.025.

    Odds of false failure in 20,000 tries: below 3e-11 (Hoeffding).
    """
    generator, tries = torch.Generator().manual_seed(0), 20_000
    logits = torch.randn(1, 2, 12, generator=generator)
    draft_logits = logits[:, :1] + distance * torch.randn(1, 1, 12, generator=generator)
    overlap = (
        torch.minimum(*(said[0, 0].double().softmax(-1) for said in (logits, draft_logits)))
        .sum()
        .item()
    )  # 1 - TV
    share = {}
    for coupling in COUPLINGS:
        chooser = sv.SamplingParams(1.0, coupling=coupling).chooser(1)
        copies = Places(torch.arange(tries), torch.full((tries,), 4))
        drafts = chooser.draft(draft_logits[:, 0].expand(tries, -1), copies)
        draft = Draft(drafts[:, None], draft_logits.expand(tries, -1, -1))
        walk = chooser.judge(draft, logits.expand(tries, -1, -1), copies)
        share[coupling] = walk.accepted.double().mean().item()
    assert share["rejection"] == pytest.approx(overlap, abs=0.025)
    assert overlap / (2 - overlap) - 0.025 < share["gumbel"] < overlap + 0.025
    if distance == 0:
        assert share == dict.fromkeys(COUPLINGS, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("temperature", "coupling"),
    [(0.7, "gumbel"), (1.0, "gumbel"), (1.0, "rejection"), (1.5, "rejection")],
)
def test_the_embedded_pair_samples_the_same_text_under_every_strategy(
    temperature: float, coupling: str, embedded: sv.Pair
) -> None:
    """In float32 forwards of other shapes differ by about 4e-6.

    On another machine the odds of one other token are about 1e-2.
    """
    params = sv.SamplingParams(temperature, coupling=coupling)
    run = {"batch_size": 3, "max_new_tokens": 16, "sampling": params, "progress": False}
    names = ("autoregressive", *SPECULATIVE) if coupling == "gumbel" else SAME_ROUNDS
    results = [
        sv.generate(embedded, sv.load_prompts(limit=4), strategy=make_strategy(name), **run)
        for name in names
    ]
    assert all(result.tokens == results[0].tokens for result in results)
    assert 1.3 < results[-1].summary["mean_acceptance_length"].item() < 5


def test_a_greedy_record_says_so(pair: sv.Pair) -> None:
    meta = sv.generate(pair, [[1, 2]], max_new_tokens=2, seed=9, progress=False).meta
    assert (meta["sampling"], meta["seed"]) == (None, 9)


def test_parameters_become_plain_numbers() -> None:
    params = sv.SamplingParams(np.float32(0.5), top_k=np.int64(3), top_p=1)
    assert params == sv.SamplingParams(0.5, 3, 1.0)
    assert [type(value) for value in (params.temperature, params.top_k, params.top_p)] == [
        float,
        int,
        float,
    ]
    with pytest.raises(AttributeError):
        params.temperature = 1.0  # type: ignore[misc]


def test_warping_keeps_shapes_and_works_in_float32() -> None:
    logits = torch.randn(2, 3, 11, generator=torch.Generator().manual_seed(0)).bfloat16()
    params = sv.SamplingParams(0.7, top_k=4)
    assert params.warp(logits).shape == logits.shape
    assert params.warp(logits).dtype == torch.float32
    p = params.distribution(logits)
    assert p.dtype == torch.float64
    torch.testing.assert_close(p.sum(-1), torch.ones(2, 3, dtype=torch.float64), rtol=0, atol=1e-14)
    torch.testing.assert_close(params.distribution(logits[1, 2]), p[1, 2], rtol=0, atol=0)


def test_a_device_computes_the_numbers_of_the_host() -> None:
    random = Random(10**20)
    places = Places(torch.tensor([0, 5, 7]), torch.tensor([3, 10, 123_456]))
    for child in (0, 2):
        host, device = (
            random.uniforms(places, 4, child),
            random.uniforms_on_device(places, 4, child),
        )
        assert torch.equal(host, device)
    for purpose in (TARGET, CHILDREN):
        host = random.gumbel(places, 1, 99, purpose)
        device = random.gumbel_on_device(places, 1, 99, purpose)
        torch.testing.assert_close(host, device, rtol=1e-12, atol=1e-12)
    many = random.gumbel(places, 3, 99)
    torch.testing.assert_close(many, random.gumbel_on_device(places, 3, 99, TARGET))


def test_noise_has_the_moments_that_it_should() -> None:
    """Means of 1e5 numbers within six standard errors: odds of false failure 4e-9 each."""
    uniforms = Noise(1).uniforms(0, 0, 10**5)
    assert np.abs(uniforms.mean(0) - 0.5).max() < 6 * (1 / 12 / 10**5) ** 0.5
    assert np.abs(np.corrcoef(uniforms.T) - np.eye(3)).max() < 6 / 10**2.5
    assert (
        abs(Noise(1).gumbel(0, 0, 10**5).mean() - np.euler_gamma)
        < 6 * (np.pi**2 / 6 / 10**5) ** 0.5
    )


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8).filter(any), unit_numbers)
def test_draws_are_by_inverse_cdf(weights: list[int], u: float) -> None:
    assert draw(
        torch.tensor([weights], dtype=torch.float64), torch.tensor([u], dtype=torch.float64)
    ).tolist() == [plain_draw(weights, u)]


def test_a_draft_is_accepted_where_u_q_is_below_p() -> None:
    p = torch.tensor([[[0.2, 0.8], [0.2, 0.8], [0.5, 0.5]]]).log()
    q = torch.tensor([[[0.4, 0.6], [0.4, 0.6]]]).log()
    draft = Draft(torch.tensor([[0, 1]]), q)
    for u, expected in (([0.49, 0.9], 2), ([0.51, 0.9], 0), ([0.49, 0.999], 2)):
        chooser = make_chooser("rejection", FixedNoise([[[0.5, each, 0.5] for each in [*u, 0.5]]]))
        assert chooser.judge(draft, p, at_start(1)).accepted.tolist() == [expected]
