"""Traps of draft heads: mistakes that implementations make, planted one at a time.

With all of them the text stays the target's own. So each has a check of its own, which passes
without the mistake and fails with it. More of them are in planted_bugs.toml.
"""

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import test_head_files as files
import test_head_modules as modules
import test_head_trees as trees
import test_heads as heads
import torch
from tiny_heads import STEPS, pair_with

from specviz.engine.drafters import chains
from specviz.engine.drafters import heads as drafters
from specviz.engine.features import FeatureStore
from specviz.engine.heads import files as head_files
from specviz.engine.heads import modules as head_modules
from specviz.engine.heads.cached import CachedHead
from specviz.engine.heads.modules import DraftHead
from specviz.engine.state import State

FAILS = (AssertionError, pytest.fail.Exception)  # also of a refusal that does not come
of = cache(partial)  # the same check of the same arguments is one object, which runs once


def check_drafts(kind, strategy):
    """Check every draft: its logits are those of a fresh forward with true features."""
    heads.check_drafts(pair_with("llama", kind, torch.float64), kind, strategy, STEPS)


MEDUSA = of(check_drafts, "medusa", "inplace")
EAGLE3 = of(check_drafts, "eagle3", "inplace")
MEDUSA_MOVED = of(check_drafts, "medusa", "exspec")
EAGLE3_MOVED = of(check_drafts, "eagle3", "eqspec")
REDUCED = of(modules.test_a_reduced_vocabulary_bounds_what_is_drafted, None)
BRANCHES = of(trees.test_each_branch_is_a_chain_of_the_head, "eagle3", "tree")
Q = partial(of, heads.test_drafts_are_drawn_from_the_very_q_that_judges_them)


# --- the mistakes; each takes what is right and returns what is wrong ---


def own_feature(_):
    """Give an entry its own token's feature."""
    return lambda features: features


def token_0_hidden(right):
    """Drop entry 0, which the head has seen in training."""

    def hiding(self, feed):
        self.hides_first = True
        return right(self, feed)

    return hiding


def token_0_doubled(right):
    """Read token 0 as entry 0 and entry 1, token 1 as entry 2, and so on."""

    def prefill(self, feed, **options):
        doubled = torch.cat([feed.tokens[:, :1], feed.tokens[:, :-1]], 1)
        right(self, replace(feed, tokens=doubled), **options)

    return prefill


def positions_short(right):
    """Let each draft stand where the token before it stands."""
    return lambda self, feed, own: right(self, replace(feed, positions=feed.positions - 1), own)


def ids_as_they_are(right):
    """Take d2t for ids, not for distances."""
    return property(lambda self: None if right.fget(self) is None else self.d2t)


def in_half_precision(right):
    """Draw drafts from a rounded q. They are judged by the one that is not rounded."""
    return lambda state, logits, ahead: right(state, (logits / 3).bfloat16() * 3, ahead)


def judged_finer(right):
    """Judge drafts by a q that is not rounded as the one that they were drawn from."""
    return lambda tokens, logits: right(tokens, logits * 1.0001)


def first_drafts(right):
    """Keep the features of a tree's first drafts, not those of the accepted branch."""
    return lambda self, features, outcome: right(self, features, replace(outcome, path=None))


def nothing(_):
    """Move nothing when rows change places or slots."""
    return lambda *_: None


TRAPS = {
    "trained one on": (head_modules, "shifted", own_feature, MEDUSA),
    "token 0 doubled": (CachedHead, "prefill", token_0_doubled, EAGLE3),
    "token 0 dropped": (CachedHead, "_hiding_first", token_0_hidden, EAGLE3),
    "features stay behind": (FeatureStore, "take", nothing, MEDUSA_MOVED),
    "K/V stays behind": (CachedHead, "move", nothing, EAGLE3_MOVED),
    "drafts one short": (CachedHead, "forward_next", positions_short, EAGLE3),
    "d2t as ids": (DraftHead, "draft_ids", ids_as_they_are, REDUCED),
    "drawn in bf16": (drafters, "choose", in_half_precision, Q("medusa")),
    "judged in float32": (chains, "Draft", judged_finer, Q("eagle3")),
    "not the branch": (State, "keep_features", first_drafts, BRANCHES),
}


def check_with_mistake(
    patch: pytest.MonkeyPatch,
    owner: Any,
    attribute: str,
    wrong: Callable[[Any], Any],
    check: Callable[[], object],
) -> None:
    """Replace `owner.attribute` by what `wrong` makes of it, and see that the check fails."""
    patch.setattr(owner, attribute, wrong(vars(owner)[attribute]))
    with pytest.raises(FAILS):
        check()
    gc.collect()  # ends the run, which else would keep its attention in the pair's models


@cache
def run_unchanged(check):
    """Run the check without a mistake. This also fits the heads that it needs."""
    check()


@pytest.mark.sweep(10)
@pytest.mark.parametrize("trap", TRAPS)
def test_a_mistake_is_found(trap, monkeypatch):
    run_unchanged(TRAPS[trap][-1])
    check_with_mistake(monkeypatch, *TRAPS[trap])


def test_a_mistake_in_a_published_head_is_found(monkeypatch, tmp_path):
    """It loads the weights of Medusa's head i as those of head i + 1."""

    def heads_one_on(right):
        def load(path):
            parts = ((name.split(".", 1), weight) for name, weight in right(path).items())
            return {f"{(int(i) + 1) % STEPS}.{rest}": weight for (i, rest), weight in parts}

        return load

    check = partial(files.test_published_medusa_heads_draft_the_same, False)
    check(tmp_path / "right")
    wrong = partial(check, tmp_path / "wrong")
    check_with_mistake(monkeypatch, head_files, "load_file", heads_one_on, wrong)
