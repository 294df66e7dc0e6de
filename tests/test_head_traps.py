"""Traps of draft heads: mistakes that implementations make, planted one at a time.

With all of them the text stays the target's own. So each has a check of its own, which passes
without the mistake and fails with it.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import test_head_files as files
import test_head_modules as modules
import test_head_trees as trees
import test_heads as heads
import torch
from tiny_heads import STEPS, pair_with
from torch import Tensor, nn

from specviz.engine.drafters import heads as drafters
from specviz.engine.drafters import model as chains
from specviz.engine.drafters.readers import ChainReader, ResidualReader
from specviz.engine.features import FeatureStore
from specviz.engine.heads import build, eagle, published, residual
from specviz.engine.heads.base import DraftHead
from specviz.engine.heads.cached import CachedHead
from specviz.engine.heads.layer import Chains
from specviz.engine.kv.feed import Feed
from specviz.engine.state import State

Check = Callable[..., Any]
FAILS = (AssertionError, pytest.fail.Exception)  # also of a refusal that does not come


of = cache(partial)  # the same check of the same arguments is one object, which runs once


def check_drafts(kind: str, strategy: str) -> None:
    """Check every draft: its logits are those of a fresh forward with true features."""
    heads.check_drafts(pair_with("llama", kind, torch.float64), kind, strategy, STEPS)


def drafts_of(kind: str, strategy: str = "inplace") -> Check:
    return of(check_drafts, kind, strategy)


MEDUSA, EAGLE3 = "medusa", "eagle3"
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


def without_zero(_: Any) -> Any:
    """Give entry 0 the feature of token 0, as entry 1 has it."""
    return lambda self, rows, indices: self.values[rows[:, None], (indices - 1).clamp(min=0)]


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


def without_norm(right: Any) -> Any:
    """Let rows of a tied LM head into a gate as long as they are."""

    def made(self: residual.Gate, settings: Any) -> None:
        right(self, settings)
        self.token_norm = nn.Identity()

    return made


def positions_off(by: int) -> Callable[[Any], Any]:
    """Let drafts stand so many positions further from the text than in training."""

    def wrong(right: Any) -> Any:
        def read(self: CachedHead, feed: Feed, *rest: Any, **options: Any) -> Tensor:
            return right(self, replace(feed, positions=feed.positions + by), *rest, **options)

        return read

    return wrong


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
    """Move nothing when rows change places or slots, or check nothing."""
    return lambda *_: None


TRAPS = [
    # which token a head predicts
    Trap("Medusa one head on", ResidualReader, "begin", one_level_on, drafts_of(MEDUSA)),
    Trap("Medusa trained one on", residual, "shifted", own_feature, drafts_of(MEDUSA)),
    # which states it reads
    Trap("before the final norm", DraftHead, "select", before_the_norm, LAYERS),
    Trap("behind the final norm", build, "check_layers", nothing, REFUSED),
    Trap("inputs of layers", DraftHead, "select", inputs, LAYERS),
    # tied embeddings
    Trap("cosine without norm", residual.Gate, "__init__", without_norm, of(WEIGHS, "cosine")),
    # which feature belongs to which token
    Trap("feature of its own token", FeatureStore, "before", feature_ahead, drafts_of(EAGLE3)),
    Trap("own feature, training", eagle, "shifted", own_feature, drafts_of("eagle1")),
    Trap("feature 0 doubled", FeatureStore, "before", without_zero, drafts_of(EAGLE3)),
    Trap("token 0 doubled", CachedHead, "prefill", token_0_doubled, drafts_of(EAGLE3)),
    Trap("token 0 dropped", CachedHead, "_hiding_first", token_0_hidden, drafts_of(EAGLE3)),
    Trap("features stay behind", FeatureStore, "take", nothing, drafts_of(MEDUSA, "exspec")),
    Trap("K/V stays behind", CachedHead, "move", nothing, drafts_of(EAGLE3, "eqspec")),
    Trap("chain not read again", drafters, "count_fed", two_alone, drafts_of(EAGLE3)),
    # position ids
    Trap("positions one on", CachedHead, "_read", positions_off(1), drafts_of(EAGLE3)),
    Trap("drafts one short", CachedHead, "forward_next", positions_off(-1), drafts_of(EAGLE3)),
    Trap("chains at one place", Chains, "step", positions_of_the_start, of(UNROLLED, EAGLE3)),
    # a reduced vocabulary
    Trap("d2t as ids", DraftHead, "draft_ids", ids_as_they_are, of(REDUCED, None)),
    Trap("other ids proposed", DraftHead, "to_logits", rest_as_likely, of(REDUCED, None)),
    # one q to draw from, another one to judge by
    Trap("chain drawn in bf16", chains, "choose", in_half_precision, of(Q, EAGLE3)),
    Trap("heads drawn in bf16", drafters, "choose", in_half_precision, of(Q, MEDUSA)),
    Trap("chain judged in float32", chains, "Draft", judged_finer, of(Q, EAGLE3)),
    # trees
    Trap("not the parent", ChainReader, "read", first_of_the_level, of(BRANCHES, EAGLE3, "tree")),
    Trap("not the branch", State, "keep_features", first_drafts, of(BRANCHES, EAGLE3, "tree")),
]


def check_with(trap: Trap, patch: pytest.MonkeyPatch, *arguments: Any) -> None:
    """Plant the mistake, and see that its check fails."""
    patch.setattr(trap.owner, trap.attribute, trap.wrong(vars(trap.owner)[trap.attribute]))
    with pytest.raises(FAILS):
        trap.check(*arguments)
    gc.collect()  # ends the run, which else would keep its attention in the pair's models


@cache
def run_unchanged(check: Check) -> None:
    """Run the check without a mistake. This also fits the heads that it needs."""
    check()


@pytest.mark.sweep(24)
@pytest.mark.parametrize("trap", TRAPS, ids=str)
def test_a_mistake_is_found(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    run_unchanged(trap.check)
    check_with(trap, monkeypatch)


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


ONE_ON = partial(files.test_published_medusa_heads_draft_the_same, False)
NAMED = files.test_published_eagle3_heads_may_name_their_layers
DRAFTS = files.test_published_eagle3_heads_draft_the_same
PUBLISHED = [
    Trap("heads one on", published, "load_file", heads_one_on, ONE_ON),
    Trap("layers by inputs", published, "_layers", layers_before, NAMED),
    Trap("entry 0 seen", published, "settings_for", seeing_first, DRAFTS),
]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("trap", PUBLISHED, ids=str)
def test_a_mistake_in_a_published_head_is_found(
    trap: Trap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trap.check(tmp_path / "right")
    check_with(trap, monkeypatch, tmp_path / "wrong")
