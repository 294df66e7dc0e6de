"""Traps of draft heads: mistakes that implementations make, planted one at a time.

With all of them the text stays the target's own. So each has a check of its own, which passes
without the mistake and fails with it.
"""

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_head_files as files
import test_head_modules as modules
import test_head_trees as trees
import test_heads as heads
import test_train_heads as training
import torch
from conftest import VOCABULARY, generate, make_pair, make_prompts
from scipy.stats import chisquare
from test_head_sampling import COPIES, sample
from test_sampling import probabilities
from tiny_heads import STEPS, pair_with, texts
from torch import Tensor, nn
from tree_drafters import TOKENS, alone

import specviz as sv
from specviz.engine.drafters import heads as drafters
from specviz.engine.drafters import model as chains
from specviz.engine.drafters.readers import ChainReader, ResidualReader
from specviz.engine.features import FeatureStore
from specviz.engine.heads import build, eagle, published, residual
from specviz.engine.heads.base import DraftHead
from specviz.engine.heads.cached import CachedHead
from specviz.engine.heads.layer import Chains
from specviz.engine.heads.settings import LAST
from specviz.engine.kv.feed import Feed
from specviz.engine.state import State
from specviz.zoo.heads import features as storing
from specviz.zoo.heads.features import keep_features, target_features
from specviz.zoo.heads.loss import HeadBatch, head_loss
from specviz.zoo.heads.measure import measure_coverage, measure_head, texts_from
from specviz.zoo.heads.training import frozen, kept_layers

WARM = sv.SamplingParams(1.3)
DISTANCE = 1.3e-3  # between what float16 and what bfloat16 make of p
Check = Callable[..., Any]
FAILS = (AssertionError, pytest.fail.Exception)  # also of a refusal that does not come


of = cache(partial)  # the same check of the same arguments is one object, which runs once


def check_drafts(kind: str, strategy: str) -> None:
    """Check every draft: its logits are those of a fresh forward with true features."""
    heads.check_drafts(pair_with("llama", kind, torch.float64), kind, strategy, STEPS)


def drafts_of(kind: str, strategy: str = "inplace") -> Check:
    return of(check_drafts, kind, strategy)


def check_training_features() -> None:
    training.test_target_features_are_those_that_heads_select(training.tiny_target())


MEDUSA, CLOVER, EAGLE3 = "medusa", "clover", "eagle3"
LAYERS = modules.test_features_are_the_outputs_of_the_layers_that_are_named
REFUSED = modules.test_heads_that_do_not_fit_the_target_are_refused
UNROLLED = modules.test_unrolled_chains_are_forwards_over_everything
WEIGHS = modules.test_a_token_weighs_the_same_however_long_its_row_of_the_lm_head_is
REDUCED = modules.test_a_reduced_vocabulary_bounds_what_is_drafted
BRANCHES = trees.test_each_branch_is_a_chain_of_the_head
Q = heads.test_drafts_are_drawn_from_the_very_q_that_judges_them


@dataclass(frozen=True)
class Trap:
    """A mistake: `owner.attribute` is replaced by what `wrong` makes of it."""

    name: str
    owner: Any
    attribute: str
    wrong: Callable[[Any], Any]
    check: Check

    def __str__(self) -> str:
        return self.name


# --- the mistakes; each takes what is right and returns what is wrong ---


def one_level_on(right: Any) -> Any:
    """Count heads as Medusa's paper does, where head 0 follows a token that is not committed."""

    def begin(self: ResidualReader, state: State) -> Tensor:
        self._level = 1
        return right(self, state)

    return begin


def own_feature(_: Any) -> Any:
    """Give an entry its own token's feature."""
    return lambda features: features


def feature_ahead(right: Any) -> Any:
    """Give an entry its own token's feature, which lies one further on."""
    return lambda self, rows, indices: right(self, rows, indices + 1)


def feature_behind(right: Any) -> Any:
    """Give an entry the feature of the token two before it."""
    return lambda self, rows, indices: right(self, rows, (indices - 1).clamp(min=0))


def without_zero(_: Any) -> Any:
    """Give entry 0 the feature of token 0, as entry 1 has it."""

    def before(self: FeatureStore, rows: Tensor, indices: Tensor) -> Tensor:
        return self.values[rows[:, None], (indices - 1).clamp(min=0)]

    return before


def token_0_hidden(right: Any) -> Any:
    """Drop entry 0, which the head has seen in training."""

    def hiding(self: CachedHead, feed: Feed) -> Feed:
        self.hides_first = True
        return right(self, feed)

    return hiding


def token_0_doubled(right: Any) -> Any:
    """Read token 0 as entry 0 and entry 1, token 1 as entry 2, and so on."""

    def prefill(self: CachedHead, feed: Feed, **options: Any) -> None:
        doubled = torch.cat([feed.tokens[:, :1], feed.tokens[:, :-1]], 1)
        right(self, replace(feed, tokens=doubled), **options)

    return prefill


def before_the_norm(right: Any) -> Any:
    """Read what goes into the last layer in place of what the LM head reads."""
    return lambda self, states: right(self, [*states[:-1], states[-2]])


def inputs(right: Any) -> Any:
    """Read the inputs of the layers that are named."""
    return lambda self, states: right(self, [states[0], *states[:-2], states[-1]])


def inputs_in_training(right: Any) -> Any:
    return lambda target, tokens, layers: right(target, tokens, [max(i - 1, -1) for i in layers])


def unchecked(_: Any) -> Any:
    """Take any layers, also the last one, whose output is not among the states."""
    return lambda *_: None


def without_norm(right: Any) -> Any:
    """Let rows of a tied LM head into a gate as long as they are."""

    def made(self: residual.Gate, settings: Any) -> None:
        right(self, settings)
        self.token_norm = nn.Identity()

    return made


def positions_on(right: Any) -> Any:
    """Let drafts stand one position further from the text than in training."""

    def read(self: CachedHead, feed: Feed, *rest: Any, **options: Any) -> Tensor:
        return right(self, replace(feed, positions=feed.positions + 1), *rest, **options)

    return read


def positions_short(right: Any) -> Any:
    """Let each draft stand where the token before it stands."""

    def read(self: CachedHead, feed: Feed, own: Any = None) -> Tensor:
        return right(self, replace(feed, positions=feed.positions - 1), own)

    return read


def positions_of_the_start(right: Any) -> Any:
    """Let all drafts of a chain stand right behind its start."""
    return lambda self, states, embedded, number: right(self, states, embedded, min(number, 1))


def ids_as_they_are(right: Any) -> Any:
    """Take d2t for ids, not for distances."""
    return property(lambda self: None if right.fget(self) is None else self.d2t)


def rest_as_likely(right: Any) -> Any:
    """Give the ids that a reduced vocabulary lacks logits of zero."""
    return lambda self, states: right(self, states).nan_to_num(neginf=0.0)


def in_half_precision(right: Any) -> Any:
    """Draw drafts from a rounded q. They are judged by the one that is not rounded."""
    return lambda state, logits, ahead: right(state, (logits / 3).bfloat16() * 3, ahead)


def judged_finer(right: Any) -> Any:
    """Judge drafts by a q that is not rounded as the one that they were drawn from."""
    return lambda tokens, logits: right(tokens, logits * 1.0001)


def two_alone(_: Any) -> Any:
    """Feed two tokens a round, which is right for a draft model."""
    return lambda state: 2


def first_of_the_level(right: Any) -> Any:
    """Go on from whatever feature is first, not from the parent's."""
    return lambda self, tokens, parents, feed: right(self, tokens, torch.zeros_like(parents), feed)


def first_drafts(right: Any) -> Any:
    """Keep the features of a tree's first drafts, not those of the accepted branch."""
    return lambda self, features, outcome: right(self, features, replace(outcome, path=None))


def nothing(_: Any) -> Any:
    """Move nothing when rows change places or slots."""
    return lambda *_: None


TRAPS = [
    # which token a head predicts
    Trap("Medusa one head on", ResidualReader, "begin", one_level_on, drafts_of(MEDUSA)),
    Trap("Clover one head on", ResidualReader, "begin", one_level_on, drafts_of(CLOVER)),
    Trap("Medusa trained one on", residual, "shifted", own_feature, drafts_of(MEDUSA)),
    # which states it reads
    Trap("before the final norm", DraftHead, "select", before_the_norm, LAYERS),
    Trap("behind the final norm", build, "check_layers", unchecked, REFUSED),
    Trap("inputs of layers", DraftHead, "select", inputs, LAYERS),
    Trap(
        "inputs, training", training, "target_features", inputs_in_training, check_training_features
    ),
    # tied embeddings
    Trap("cosine without norm", residual.Gate, "__init__", without_norm, of(WEIGHS, "cosine")),
    Trap("silu without norm", residual.Gate, "__init__", without_norm, of(WEIGHS, "silu")),
    # which feature belongs to which token
    Trap("feature of its own token", FeatureStore, "before", feature_ahead, drafts_of(EAGLE3)),
    Trap("feature two before", FeatureStore, "before", feature_behind, drafts_of(EAGLE3)),
    Trap("own feature, training", eagle, "shifted", own_feature, drafts_of("eagle1")),
    Trap("feature 0 doubled", FeatureStore, "before", without_zero, drafts_of(EAGLE3)),
    Trap("token 0 doubled", CachedHead, "prefill", token_0_doubled, drafts_of(EAGLE3)),
    Trap("token 0 dropped", CachedHead, "_hiding_first", token_0_hidden, drafts_of(EAGLE3)),
    Trap("features stay behind", FeatureStore, "take", nothing, drafts_of(MEDUSA, "exspec")),
    Trap("K/V stays behind", CachedHead, "move", nothing, drafts_of(EAGLE3, "eqspec")),
    # what is read again
    Trap("chain not read again", drafters, "count_fed", two_alone, drafts_of(EAGLE3)),
    Trap("masks not read again", drafters, "count_fed", two_alone, drafts_of("parallel")),
    # position ids
    Trap("positions one on", CachedHead, "_read", positions_on, drafts_of(EAGLE3)),
    Trap(
        "drafts one position short",
        CachedHead,
        "forward_next",
        positions_short,
        drafts_of(EAGLE3),
    ),
    Trap("chains at one place", Chains, "step", positions_of_the_start, of(UNROLLED, EAGLE3)),
    # a reduced vocabulary
    Trap("d2t as ids", DraftHead, "draft_ids", ids_as_they_are, of(REDUCED, None)),
    Trap("other ids proposed", DraftHead, "to_logits", rest_as_likely, of(REDUCED, None)),
    # one q to draw from, another one to judge by
    Trap("chain drawn in bf16", chains, "choose", in_half_precision, of(Q, EAGLE3)),
    Trap("heads drawn in bf16", drafters, "choose", in_half_precision, of(Q, MEDUSA)),
    Trap("masks drawn in bf16", drafters, "choose", in_half_precision, of(Q, "parallel")),
    Trap("chain judged in float32", chains, "Draft", judged_finer, of(Q, EAGLE3)),
    Trap("heads judged in float32", drafters, "Draft", judged_finer, of(Q, MEDUSA)),
    # trees
    Trap("not the parent", ChainReader, "read", first_of_the_level, of(BRANCHES, EAGLE3, "tree")),
    Trap("not the branch", State, "keep_features", first_drafts, of(BRANCHES, EAGLE3, "tree")),
]


@cache
def run_unchanged(check: Check) -> None:
    """Run the check without a mistake. This also fits the heads that it needs."""
    check()


@pytest.mark.sweep(31)
@pytest.mark.parametrize("trap", TRAPS, ids=str)
def test_a_mistake_is_found(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    run_unchanged(trap.check)
    wrong = trap.wrong(vars(trap.owner)[trap.attribute])
    monkeypatch.setattr(trap.owner, trap.attribute, wrong)
    with pytest.raises(FAILS):
        trap.check()
    gc.collect()  # ends the run, which else would keep its attention in the pair's models


# --- heads that others publish ---


def heads_one_on(right: Any) -> Any:
    """Load the weights of Medusa's head i as those of head i + 1."""

    def load(path: Path) -> dict[str, Tensor]:
        found = {}
        for name, weight in right(path).items():
            number, rest = name.split(".", 1)
            found[f"{(int(number) + 1) % STEPS}.{rest}"] = weight
        return found

    return load


def layers_before(right: Any) -> Any:
    """Take layers that are named by their outputs for layers that are named by their inputs."""
    return lambda *given: tuple(layer - 1 for layer in right(*given))


def seeing_first(right: Any) -> Any:
    """Let a head attend to entry 0, which it has never seen."""
    return lambda *given, **settings: right(*given, **settings | {"hides_first": False})


PUBLISHED = [
    Trap(
        "heads one on",
        published,
        "load_file",
        heads_one_on,
        partial(files.test_published_medusa_heads_draft_the_same, False),
    ),
    Trap(
        "layers by inputs",
        published,
        "_layers",
        layers_before,
        files.test_published_eagle3_heads_may_name_their_layers,
    ),
    Trap(
        "entry 0 seen",
        published,
        "settings_for",
        seeing_first,
        files.test_published_eagle3_heads_draft_the_same,
    ),
]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("trap", PUBLISHED, ids=str)
def test_a_mistake_in_a_published_head_is_found(
    trap: Trap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trap.check(tmp_path / "right")
    wrong = trap.wrong(vars(trap.owner)[trap.attribute])
    monkeypatch.setattr(trap.owner, trap.attribute, wrong)
    with pytest.raises(FAILS):
        trap.check(tmp_path / "wrong")
    gc.collect()


# --- what the mistakes cost ---


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", [EAGLE3, "parallel"])
def test_without_reading_again_fewer_drafts_are_accepted(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drafter says that it reads accepted drafts again. The record shows that it does not."""
    kept = heads.run("llama", kind, record=True)
    assert not sv.check_invariants(kept.trace)
    monkeypatch.setattr(drafters, "count_fed", two_alone(drafters.count_fed))
    stale = heads.run("llama", kind, record=True)
    assert stale.tokens == kept.tokens == alone("llama", torch.float32, False)
    assert sum(map(sum, heads.accepted(stale))) < sum(map(sum, heads.accepted(kept)))
    assert sv.check_invariants(stale.trace)[0].rule == "caches"


def test_kv_of_a_head_that_stays_behind_is_found_by_its_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Strategies that move K/V accept fewer drafts than one that does not."""
    pair = pair_with("llama", EAGLE3)
    counts = heads.accepted(heads.run("llama", EAGLE3))
    right = heads.run("llama", EAGLE3, strategy="eqspec", record=True)
    assert heads.accepted(right) == counts
    monkeypatch.setattr(CachedHead, "move", nothing(CachedHead.move))
    stale = heads.run("llama", EAGLE3, strategy="eqspec", record=True)
    assert stale.tokens == right.tokens
    assert sum(map(sum, heads.accepted(stale))) < sum(map(sum, counts))
    found = sv.check_invariants(stale.trace, deep=True, pair=pair)
    assert {violation.model for violation in found} == {"draft"}


def chances(kind: str) -> float:
    """The chance of sampled texts that are as far from the target's, by chi-square."""
    expected = dict(probabilities(WARM))
    counts = Counter(sample(kind, WARM))
    often = [row for row, chance in expected.items() if chance * COPIES >= 5]
    observed = [counts[row] for row in often]
    wanted = [expected[row] * COPIES for row in often]
    observed.append(COPIES - sum(observed))
    wanted.append(COPIES - sum(wanted))
    return float(chisquare(observed, wanted).pvalue)


@pytest.mark.slow
def test_drafts_of_a_rounded_q_bias_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded to wholes, so that 2000 texts show it.

    Seeds are fixed; over seeds, the first half fails with odds of one in a million.
    """
    assert chances(EAGLE3) > 1e-6
    right = chains.choose
    monkeypatch.setattr(chains, "choose", lambda state, q, ahead: right(state, q.round(), ahead))
    assert chances(EAGLE3) < 1e-6


def reduced(ids: Tensor) -> sv.Pair:
    """The fitted EAGLE-3 head, which now can propose these ids alone."""
    pair = pair_with("llama", EAGLE3)
    head = build.build_head(EAGLE3, pair.target, draft_vocabulary_size=len(ids))
    known = dict(pair.heads[EAGLE3].state_dict())
    known["d2t"] = ids - torch.arange(len(ids))
    known["lm_head.weight"] = pair.target.get_output_embeddings().weight[ids]
    head.load_state_dict(known)
    return replace(pair, heads={EAGLE3: head.eval().requires_grad_(False)})


def test_no_more_drafts_are_accepted_than_a_reduced_vocabulary_covers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = reduced(torch.arange(1, VOCABULARY, 2))
    head = pair.heads[EAGLE3]
    texts = alone("llama", torch.float32, False)
    layers = kept_layers(pair.target)
    coverage = measure_coverage(head, texts_from(pair.target, make_prompts(), texts, layers))
    bound = coverage * sum(map(len, texts))

    def count() -> int:
        result = generate(
            pair, make_prompts(), drafter=EAGLE3, num_draft_tokens=STEPS, max_new_tokens=TOKENS
        )
        assert result.tokens == texts
        return sum(map(sum, heads.accepted(result)))

    assert 0 < count() <= bound
    # A head that proposes all ids is beyond the bound, so the bound is one.
    monkeypatch.setattr(DraftHead, "to_logits", lambda self, states: self.target_lm_head(states))
    assert count() > bound


# --- training ---


def length(kind: str, tokens: Tensor, late: int = 0) -> float:
    """The acceptance length on the target's own texts after a training on `tokens` (10, T).

    late: how many tokens behind the right ones those are that the head learns.
    """
    target = make_pair("llama").target
    head = build.build_head(kind, target, seed=1)
    layers = (*head.settings.layers, LAST)
    features = target_features(target, tokens, layers).clone().split(head.settings.hidden_size, -1)
    own = texts("llama")
    starts = torch.tensor([[len(text)] for text in own]) + torch.arange(-TOKENS, -STEPS)
    batch = HeadBatch(
        tokens, torch.cat(features[:-1], -1), features[-1].roll(-late, 1), starts.clamp(min=1)
    )
    optimiser = torch.optim.AdamW(head.parameters(), lr=1e-2)
    with frozen(target):
        for _ in range(20):
            optimiser.zero_grad()
            head_loss(head, target, STEPS, batch).backward()
            optimiser.step()
    new = [text[len(prompt) :] for prompt, text in zip(make_prompts(), own, strict=True)]
    measured = texts_from(target, make_prompts(), new, kept_layers(target))
    return measure_head(head.eval(), measured)["length"]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", [MEDUSA, CLOVER])
def test_a_head_is_trained_on_the_targets_texts_and_on_the_token_behind(kind: str) -> None:
    """On other texts it hardly learns the target's own. A token late, it proposes the one after."""
    own = texts("llama")
    longest = max(map(len, own))
    tokens = torch.tensor([text + [0] * (longest - len(text)) for text in own])
    generator = torch.Generator().manual_seed(0)
    corpus = torch.randint(0, VOCABULARY, tokens.shape, generator=generator)
    right = length(kind, tokens)
    assert right > 1.3
    assert length(kind, corpus) < 1.1
    assert length(kind, tokens, late=1) < 1.2


def distance_of_p(folder: Path, dtype: torch.dtype) -> float:
    """The largest total variation between the target's p and that of the states on disk."""
    target = training.tiny_target()
    tokens = np.random.default_rng(0).integers(3, 40, (4, 24))
    folder.mkdir()
    kept = keep_features(target, tokens, (LAST,), folder, dtype=dtype, progress=False)
    given, states = kept.batch(np.arange(4), (LAST,))
    with torch.no_grad():
        p = target(given).logits.softmax(-1)
        found = target.lm_head(states).softmax(-1)
    return float((p - found).abs().sum(-1).max() / 2)


def test_states_on_disk_give_the_targets_p(tmp_path: Path) -> None:
    """In float16 they do. In bfloat16, which has eight bits of a number, they do not."""
    assert distance_of_p(tmp_path / "half", torch.float16) < DISTANCE
    assert distance_of_p(tmp_path / "brain", torch.bfloat16) > DISTANCE


def test_states_beyond_float16_end_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused when they are stored. If they were not, the loss would not be finite."""
    target = training.tiny_target()
    with torch.no_grad():
        target.model.norm.weight.mul_(1e6)
    windows = np.random.default_rng(0).integers(3, 40, (4, 24))
    train = partial(training.train_head, MEDUSA, target, windows, plan=training.PLAN)
    with pytest.raises(ValueError, match=r"^dtype=torch.float16 cannot hold the target's features"):
        train(tmp_path / "refused", progress=False)

    def unrefused(model: Any, tokens: np.ndarray, layers: Any, dtype: torch.dtype) -> Tensor:
        return target_features(model, torch.from_numpy(tokens), layers).to(dtype)

    monkeypatch.setattr(storing, "_compute", unrefused)
    with pytest.raises(ValueError, match=r"^the loss of head-medusa is not finite at step \d: "):
        train(tmp_path / "kept", progress=False)


def test_the_last_layers_own_output_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers returns it after the final norm, which heads that fuse layers do not want."""
    target = make_pair("llama").target
    last = target.config.num_hidden_layers - 1
    with pytest.raises(ValueError, match=r"^layers=.* names \["):
        build.build_head(EAGLE3, target, layers=(last,))
    monkeypatch.setattr(build, "check_layers", unchecked(build.check_layers))
    head = build.build_head(EAGLE3, target, layers=(last,))
    seen = []
    hook = target.model.layers[last].register_forward_hook(lambda *call: seen.append(call[-1]))
    with torch.inference_mode():
        states = target(torch.tensor([[1, 2, 3]]), output_hidden_states=True).hidden_states
    hook.remove()
    output = seen[0][0] if isinstance(seen[0], tuple) else seen[0]
    assert not torch.allclose(head.select(states), output)
    assert torch.equal(head.select(states), target.model.norm(output))
