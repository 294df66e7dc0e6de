"""Plant known bugs, one at a time, and see that the fast tests catch each of them.

Run as `PYTHONPATH=tests python -m planted_bugs [NAME ...]`, or `make planted`. Who merges or
removes tests learns here whether protection was lost. Each bug is a mistake that somebody could
make, and names the fast tests that have to fail. The bugs are planted in a copy of the repository.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAST = "not slow and not browser and not gpu"
LIMIT_S = 300  # a bug that makes the tests hang is not caught
CAUGHT = "caught"
PASSED, FAILED, NO_TESTS = 0, 1, 5  # exit statuses of pytest; of the others, none is a verdict


@dataclass(frozen=True)
class Bug:
    """A mistake, and the tests that are to notice it.

    Attributes:
        file: below the root.
        old, new: the text that is replaced, which occurs once in the file, and what replaces it.
        harm: what would go wrong for a user.
        tests: arguments for pytest.
    """

    name: str
    file: str
    old: str
    new: str
    harm: str
    tests: str

    def planted(self, text: str) -> str:
        """Return the file's text with the bug. Raise ValueError unless `old` occurs once."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"its old text occurs {found} times in {self.file}")
        return text.replace(self.old, self.new)


BUGS = (
    # engine
    Bug(
        name="accept-off-by-one",
        file="specviz/engine/accept.py",
        old="return count_leading(judged(drafts == choice[:, :-1], lengths)), choice",
        new="return count_leading(judged(drafts == choice[:, 1:], lengths)), choice",
        harm="drafts are judged by the target's choice one token later",
        tests="tests/test_accept.py",
    ),
    Bug(
        name="eos-among-the-drafts",
        file="specviz/engine/accept.py",
        old="count_leading(~is_eos)",
        new="count_leading(~is_eos | (torch.arange(width) < accepted[:, None]))",
        harm="a text goes on behind an EOS that was an accepted draft",
        tests="tests/test_accept.py",
    ),
    Bug(
        name="one-beyond-the-budget",
        file="specviz/engine/accept.py",
        old="wanted = torch.minimum(accepted + 1, limit)",
        new="wanted = torch.minimum(accepted, limit) + 1",
        harm="a row gets a token more than its budget",
        tests="tests/test_accept.py",
    ),
    Bug(
        name="bonus-of-another-row",
        file="specviz/engine/sampling.py",
        old="here = accepted[:, None, None].expand(-1, 1, size)",
        new="here = accepted[:1, None, None].expand(len(p), 1, size)",
        harm="all rows draw their bonus where the first row's drafts end",
        tests="tests/test_sampling.py -k inverse_cdf",
    ),
    Bug(
        name="residual-not-normalised",
        file="specviz/engine/rejection.py",
        old="threshold = uniforms[:, None] * cumulative[:, -1:]",
        new="threshold = uniforms[:, None]",
        harm="samples after a rejection are not distributed as the target's",
        tests="tests/test_sampling.py -k inverse_cdf",
    ),
    Bug(
        name="noise-by-slot",
        file="specviz/engine/loop.py",
        old="indices = [row.length for row in rows]",
        new="indices = [state.layout.pending(i, row.length) + 1 for i, row in enumerate(rows)]",
        harm="a sample depends on the padding, and so on the other prompts",
        tests="tests/test_sampling.py -k gumbel",
    ),
    Bug(
        name="unverified-in-the-residual",
        file="specviz/engine/sampling.py",
        old="q = q.masked_fill(beyond[:, :, None], 0)",
        new="q = q.masked_fill(beyond[:, :, None], 0) if width > 9 else q",
        harm="behind its verified drafts, a row draws from p less the q of one that is not judged",
        tests="tests/test_ragged.py -k judged",
    ),
    Bug(
        name="head-feature-of-its-own-token",
        file="specviz/engine/features.py",
        old="found = self.values[rows[:, None], (indices - 1).clamp(min=0)]",
        new="found = self.values[rows[:, None], indices]",
        harm="an entry of a head reads the feature of its own token, which is not known in time",
        tests="tests/test_heads.py -k true_features",
    ),
    Bug(
        name="head-features-one-late",
        file="specviz/engine/state.py",
        old="first = self.batch.n - outcome.gained - 1  # (b,)",
        new="first = self.batch.n - outcome.gained  # (b,)",
        harm="features of committed tokens are kept one token too late",
        tests="tests/test_features.py -k committed",
    ),
    Bug(
        name="head-features-of-a-chain",
        file="specviz/engine/state.py",
        old="features = features.gather(1, columns.expand_as(features))",
        new="pass",
        harm="of a tree, the features of its first drafts are kept, not those of the branch",
        tests="tests/test_features.py -k branch",
    ),
    Bug(
        name="head-not-fed-again",
        file="specviz/engine/drafters/readers.py",
        old="return min(state.fed_first, max(1, *unread))",
        new="return 2",
        harm="a head keeps what it guessed of drafts, and fewer drafts are accepted",
        tests="tests/test_heads.py -k true_features",
    ),
    Bug(
        name="head-parent-of-the-level",
        file="specviz/engine/drafters/readers.py",
        old="return self.cache.forward_next(feed(), at(self.cache.own, parents)).float()",
        new="return self.cache.forward_next(feed(), self.cache.own[:, : tokens.shape[1]]).float()",
        harm="a draft of a tree goes on from another draft's feature",
        tests="tests/test_head_trees.py -k branch",
    ),
    Bug(
        name="head-layer-input",
        file="specviz/engine/heads/base.py",
        old="hidden_states[layer + 1]",
        new="hidden_states[layer]",
        harm="a head reads the inputs of the layers that it names, not their outputs",
        tests="tests/test_head_modules.py -k outputs",
    ),
    Bug(
        name="head-guesses-stay",
        file="specviz/checks/forwards.py",
        old='self._ledger.reject(batch, rows["length"][these], model=_DRAFT)',
        new="pass",
        harm="the checker does not notice that a head kept its guesses",
        tests="tests/test_heads.py -k record_tells",
    ),
    Bug(
        name="head-of-any-target",
        file="specviz/engine/heads/folder.py",
        old="if settings.target and settings.target != fingerprint(target):",
        new="if False:",
        harm="a head of another target is loaded, and hardly a draft of it is accepted",
        tests="tests/test_head_files.py -k another_target",
    ),
    Bug(
        name="head-of-siblings-computed-again",
        file="specviz/checks/text_features.py",
        old="return on_path | (node == 0)",
        new="return on_path | (node >= 0)",
        harm="deep=True takes features of rejected drafts of a tree for those of the text",
        tests="tests/test_head_trees.py -k computed_again",
    ),
    Bug(
        name="head-number-one-on",
        file="specviz/engine/drafters/readers.py",
        old="output = self.head.step(states, tokens, self._level)",
        new="output = self.head.step(states, tokens, self._level + 1)",
        harm="Medusa's first head proposes the token behind the one that it was trained for",
        tests="tests/test_heads.py -k true_features",
    ),
    Bug(
        name="head-before-the-final-norm",
        file="specviz/engine/heads/base.py",
        old="hidden_states[-1] if layer == LAST",
        new="hidden_states[-2] if layer == LAST",
        harm="Medusa and Clover read states that the target's LM head never reads",
        tests="tests/test_head_modules.py -k outputs",
    ),
    Bug(
        name="head-behind-the-final-norm",
        file="specviz/engine/heads/build.py",
        old="known = [LAST, *range(count - 1)]",
        new="known = [LAST, *range(count)]",
        harm="EAGLE-3 fuses the final norm's output where it names the last layer",
        tests="tests/test_head_modules.py -k do_not_fit",
    ),
    Bug(
        name="head-gate-without-a-norm",
        file="specviz/engine/heads/residual.py",
        old="token = self.token_norm(rows)",
        new="token = rows",
        harm="frequent tokens, whose rows of a tied LM head are long, dominate Clover's gate",
        tests="tests/test_head_modules.py -k weighs",
    ),
    Bug(
        name="head-token-0-twice",
        file="specviz/engine/features.py",
        old="return found.masked_fill((indices == 0)[..., None], 0)",
        new="return found",
        harm="entry 0 reads its own token's feature, as in ports that double the first token",
        tests="tests/test_features.py -k committed",
    ),
    Bug(
        name="head-token-0-twice-in-training",
        file="specviz/engine/heads/layer.py",
        old="return torch.cat([torch.zeros_like(features[:, :1]), features[:, :-1]], 1)",
        new="return torch.cat([features[:, :1], features[:, :-1]], 1)",
        harm="a head is trained on other features than it reads when it drafts",
        tests="tests/test_heads.py -k true_features",
    ),
    Bug(
        name="head-published-with-entry-0",
        file="specviz/engine/heads/published.py",
        old="hides_first=True,",
        new="hides_first=False,",
        harm="a published EAGLE-3 head attends to an entry that it has never seen",
        tests="tests/test_head_files.py -k draft_the_same",
    ),
    Bug(
        name="head-published-layers-by-input",
        file="specviz/engine/heads/published.py",
        old="layers = tuple(outputs)",
        new="layers = tuple(layer - 1 for layer in outputs)",
        harm="a head that SpecForge trained reads the layers before those that it names",
        tests="tests/test_head_files.py -k name_their_layers",
    ),
    Bug(
        name="head-published-layers-by-output",
        file="specviz/engine/heads/published.py",
        old="tuple(layer - 1 for layer in inputs)",
        new="tuple(layer for layer in inputs)",
        harm="a published head reads the layers behind those that its configuration names",
        tests="tests/test_head_files.py -k name_their_layers",
    ),
    Bug(
        name="head-positions-of-the-start",
        file="specviz/engine/heads/layer.py",
        old="positions = self.starts + number",
        new="positions = self.starts",
        harm="all entries of a chain are trained at one position",
        tests="tests/test_head_modules.py -k unrolled",
    ),
    Bug(
        name="head-positions-one-late",
        file="specviz/engine/heads/cached.py",
        old="arguments |= self._arguments(feed, dense=True)",
        new="late = replace(feed, positions=feed.positions + 1)\n"
        "        arguments |= self._arguments(late, dense=True)",
        harm="drafts stand one position further from the text than they were trained to",
        tests="tests/test_heads.py -k true_features",
    ),
    Bug(
        name="head-proposes-what-it-cannot",
        file="specviz/engine/heads/base.py",
        old="self.settings.vocabulary_size), -torch.inf)",
        new="self.settings.vocabulary_size), 0.0)",
        harm="a head of a reduced vocabulary proposes ids that it was never trained for",
        tests="tests/test_head_modules.py -k reduced",
    ),
    Bug(
        name="head-drawn-in-half-precision",
        file="specviz/engine/drafters/model.py",
        old="own = choose(state, step_logits, j)[:, None]  # (b, 1)",
        new="own = choose(state, (step_logits / 3).bfloat16() * 3, j)[:, None]  # (b, 1)",
        harm="drafts are drawn from a rounded q and judged by another, so the text is biased",
        tests="tests/test_heads.py -k drawn_from_the_very",
    ),
    Bug(
        name="tree-positions-by-number",
        file="specviz/engine/placing.py",
        old="indices = pending + depths",
        new="indices = pending + columns",
        harm="a draft of a tree stands behind drafts that it does not follow",
        tests="tests/test_tree_runs.py -k no_tree",
    ),
    Bug(
        name="siblings-see-each-other",
        file="specviz/engine/state.py",
        old="return self.feed_nodes(tokens, columns, tree.depths, tree.ancestors, columns)",
        new="seen = torch.ones_like(tree.ancestors).tril()\n"
        "            return self.feed_nodes(tokens, columns, tree.depths, seen, columns)",
        harm="a draft of a tree attends to drafts that it does not follow",
        tests="tests/test_tree_runs.py -k no_tree",
    ),
    Bug(
        name="written-before-it-is-read",
        file="specviz/engine/kv/moves.py",
        old="flat.index_copy_(0, destination, flat.index_select(0, source))",
        new="for at, to in zip(source, destination, strict=True):\n            flat[to] = flat[at]",
        harm="K/V that moves overwrites K/V that has yet to move",
        tests="tests/test_tree_runs.py -k in_the_way",
    ),
    Bug(
        name="siblings-alike",
        file="specviz/engine/trees/shape.py",
        old="if bool((ordered[:, 1:] == ordered[:, :-1]).any()):",
        new="if bool((ordered[:, 1:] < ordered[:, :-1]).any()):",
        harm="a token that is proposed twice after one node is judged twice",
        tests="tests/test_tree_refusals.py -k bad_trees",
    ),
    Bug(
        name="drawn-children-reordered",
        file="specviz/engine/drafters/static_tree.py",
        old="return chooser.draw_children(logits, requests, indices, count)",
        new="return chooser.draw_children(logits, requests, indices, count).sort(-1).values",
        harm="which sibling is judged first depends on which tokens were drawn",
        tests="tests/test_tree_sampling.py -k emitted",
    ),
    Bug(
        name="path-behind-the-end",
        file="specviz/engine/relocation.py",
        old="count = max(row.gained - 1, 0)",
        new="count = row.accepted",
        harm="K/V moves of drafts that an EOS or the budget cuts off",
        tests="tests/test_tree_runs.py -k only_accepted",
    ),
    Bug(
        name="eos-by-number",
        file="specviz/engine/trees/walk.py",
        old="tokens = drafts.gather(1, path.clamp(max=max(n - 1, 0)))",
        new="tokens = drafts",
        harm="a row emits the first drafts of a tree, and ends where one of those is EOS",
        tests="tests/test_tree_runs.py -k eos",
    ),
    Bug(
        name="states-stay-behind",
        file="specviz/engine/kv/cache.py",
        old="        if pairs and self._mixers:",
        new="        if False:",
        harm="rows that trade places leave their states behind",
        tests="tests/test_states.py -k drafts_as",
    ),
    Bug(
        name="state-of-the-last-request",
        file="specviz/engine/kv/states.py",
        old="        found[indices < 0] = 0\n",
        new="",
        harm="a prompt of one token goes on from the state of the row's last request",
        tests="tests/test_states.py -k gone",
    ),
    Bug(
        name="states-too-few",
        file="specviz/engine/kv/cache.py",
        old="depth=columns + MORE_STATES",
        new="depth=8",
        harm="with many drafts, the state that a rejected draft is taken back to is gone",
        tests="tests/test_states.py -k options",
    ),
    Bug(
        name="state-before-the-last-draft",
        file="specviz/engine/kv/states.py",
        old="first = count - 1\n",
        new="first = count\n",
        harm="a draft model has no state to read its prompt's last token again",
        tests="tests/test_states.py -k drafts_as",
    ),
    Bug(
        name="states-read-at-once",
        file="specviz/engine/kv/states.py",
        old="if count > 2 and int(steps.indices[i, 0]) == 0:",
        new="if count > 2:",
        harm="layers that drop their state where they read several tokens start from nothing",
        tests="tests/test_states.py -k options",
    ),
    Bug(
        name="inputs-of-the-last-request",
        file="specviz/engine/kv/states.py",
        old="        state[last < 0] = 0\n",
        new="",
        harm="a rule reads a new prompt from the state of the row's last request",
        tests="tests/test_states.py -k rules",
    ),
    Bug(
        name="inputs-read-twice",
        file="specviz/engine/kv/states.py",
        old="last + 1 + j",
        new="last + j",
        harm="a rule reads the token again whose state is kept",
        tests="tests/test_states.py -k rules",
    ),
    Bug(
        name="filling-read-at-once",
        file="specviz/engine/kv/states.py",
        old=" and steps.are_runs",
        new="",
        harm="a draft's state takes in the only token of a prompt twice",
        tests="tests/test_states.py -k ragged",
    ),
    Bug(
        name="windows-one-late",
        file="specviz/engine/kv/states.py",
        old="windows[:, :, 1:]",
        new="windows[:, :, :-1]",
        harm="a convolution reads on from its inputs before the last token",
        tests="tests/test_states.py -k rules",
    ),
    Bug(
        name="time-steps-clamped",
        file="specviz/engine/kv/states.py",
        old="{mixer: _UNLIMITED for mixer in mixers if hasattr(mixer, name)}",
        new="{}",
        harm="a prompt's time steps are clamped, those of drafts are not",
        tests="tests/test_states.py -k single_tokens",
    ),
    Bug(
        name="indexer-keys-stay",
        file="specviz/engine/kv/slabs.py",
        old="return found if self.indexer is None else [*found, self.indexer]",
        new="return found",
        harm="rows that trade places leave the keys behind by which they select tokens",
        tests="tests/test_states.py -k other_kinds",
    ),
    Bug(
        name="queries-in-a-row",
        file="specviz/engine/kv/slabs.py",
        old="return indices - torch.arange(len(indices), device=indices.device)",
        new="return super().get_query_offset(layer_idx)",
        harm="relative positions are counted from the cache's columns",
        tests="tests/test_states.py -k ask_for_places",
    ),
    Bug(
        name="keys-without-positions",
        file="specviz/engine/kv/slabs.py",
        old="layer.indexer_position_ids = self.access.indices.expand(3, -1, -1)",
        new="layer.indexer_position_ids = 0 * self.access.indices.expand(3, -1, -1)",
        harm="an indexer compares keys without their positions",
        tests="tests/test_states.py -k ask_for_places",
    ),
    Bug(
        name="states-in-modules",
        file="specviz/engine/kv/states.py",
        old="return [(module, name) for module in mixer.modules() for name in _held(module)]",
        new="return []",
        harm="states that modules keep themselves are not taken back",
        tests="tests/test_states.py -k ask_for_places",
    ),
    Bug(
        name="states-of-other-mixers",
        file="specviz/engine/kv/states.py",
        old="if self.number_of_states > 1 and (kind, i) not in self.asked:",
        new="if False:",
        harm="a convolution looks for the states of those behind it in its layer",
        tests="tests/test_states.py -k ask_for_places",
    ),
    Bug(
        name="columns-masked-by-a-table",
        file="specviz/engine/kv/layer_masks.py",
        old="tables[module] = _Given((seen | ~visible)[:, None].to(module.bias.device))",
        new="pass",
        harm="layers hide tokens by their columns in the cache",
        tests="tests/test_layer_masks.py -k batch",
    ),
    Bug(
        name="window-of-the-proposals",
        file="specviz/engine/state.py",
        old="window = max(pending) + 1 + max(self.num_draft_tokens, self.draft_columns)",
        new="window = max(pending) + 1 + self.num_draft_tokens",
        harm="the draft model does not see drafts that it has read for a tree",
        tests="tests/test_tree_records.py -k branch",
    ),
    Bug(
        name="slab-of-the-proposals",
        file="specviz/engine/setup.py",
        old="columns = max(max_draft_tokens, drafter.columns(max_draft_tokens))",
        new="columns = max(max_draft_tokens, 0)",
        harm="the draft model of a tree writes beyond its slabs",
        tests="tests/test_tree_records.py -k branch",
    ),
    Bug(
        name="draft-compacted-as-the-target",
        file="specviz/engine/relocation.py",
        old="places = (row.draft_path if of_draft else row.path)[:count]",
        new="places = row.path[:count]",
        harm="the draft model reads K/V of other drafts, and fewer are accepted",
        tests="tests/test_tree_runs.py -k anew",
    ),
    Bug(
        name="children-judged-by-the-first-q",
        file="specviz/engine/trees/rejection.py",
        old="q_here = _without(q_here, tried)",
        new="q_here = _without(q_here, torch.zeros_like(tried))",
        harm="samples with trees are not distributed as the target's",
        tests="tests/test_tree_sampling.py -k without_bias",
    ),
    Bug(
        name="a-repeat-is-judged-as-another-token",
        file="specviz/engine/sampling.py",
        old='drawn=drawn if judged_by == "each" else None',
        new="drawn=None",
        harm="of children drawn independently, one that was not drawn is accepted: biased text",
        tests="tests/test_tree_sampling.py -k stands_in",
    ),
    Bug(
        name="score-reads-the-draft",
        file="specviz/engine/selectors/tetris.py",
        old="return pad(chances[:, :-1], (1, 0)) + log_q.amax(-1)",
        new="return chances",
        harm="sampled text is not distributed as the target's under a score that promises it",
        tests="tests/test_selectors.py -k 'foresee or reads'",
    ),
    Bug(
        name="idle-rows-claim-capacity",
        file="specviz/engine/selectors/base.py",
        old="return sum(not row.finished for row in state.batch.rows)",
        new="return len(state.batch.rows)",
        harm="rows that have finished let the others verify more than K drafts a row",
        tests="tests/test_selectors.py -k claim",
    ),
    Bug(
        name="idle-places-claim-capacity",
        file="specviz/simulation/selection.py",
        old="capacity = num_draft_tokens * working.sum(1)",
        new="capacity = num_draft_tokens * working.shape[1] + 0 * working.sum(1)",
        harm="a replayed round verifies more drafts than the engine's",
        tests="tests/test_selection.py -k own_rows",
    ),
    Bug(
        name="capacity-of-all-drafts",
        file="specviz/engine/selectors/capacity.py",
        old="return rises.long().cumprod(0).sum()",
        new="return rate.argmax()",
        harm="whether a draft is judged depends on the drafts behind it, so sampled text is biased",
        tests="tests/test_capacity.py",
    ),
    Bug(
        name="bonus-of-the-rectangle",
        file="specviz/engine/loop.py",
        old="return (draft.lengths + 1 - (K + 1 - most)).clamp(min=1)",
        new="return most",
        harm="without the bonus, rows that verify fewer than K drafts still gain it",
        tests="tests/test_ragged.py -k without_the_bonus",
    ),
    Bug(
        name="auto-learns-unverified-drafts",
        file="specviz/engine/auto.py",
        old="verified = [k] * len(spent.accepted) if spent.verified is None else spent.verified",
        new="verified = [k] * len(spent.accepted)",
        harm="a draft that a selector left out counts as rejected, so that K becomes too small",
        tests="tests/test_draft_length.py -k judged",
    ),
    Bug(
        name="tree-without-its-parents",
        file="specviz/engine/selectors/base.py",
        old='KEPT = ("tokens", "logits", "parents",',
        new='KEPT = ("tokens", "logits",',
        harm="a selector's mistake has a tree judged as a chain, and drawn siblings are biased",
        tests="tests/test_selectors.py -k with_its_choice",
    ),
    Bug(
        name="score-of-raw-logits",
        file="specviz/engine/selectors/tetris.py",
        old="return state.chooser.log_q(draft.logits)",
        new="return draft.logits.log_softmax(-1)",
        harm="under temperature and top-p the wrong drafts are verified",
        tests="tests/test_selectors.py -k warped",
    ),
    Bug(
        name="chain-rereads-a-slot",
        file="specviz/engine/kv/chained.py",
        old="slots=access.slots[:, start:stop]",
        new="slots=access.slots[:, : stop - start]",
        harm="compiled drafts overwrite the K/V of the tokens before them, and fewer are accepted",
        tests="tests/test_chained.py",
    ),
    Bug(
        name="chain-keeps-a-feature",
        file="specviz/engine/kv/chained.py",
        old='arguments["features"] = output.hidden[:, -1:]',
        new='arguments["features"] = arguments["features"][:, -1:]',
        harm="a compiled head never reads its own output, and fewer drafts are accepted",
        tests="tests/test_chained.py -k own_features",
    ),
    Bug(
        name="trial-within-the-columns",
        file="specviz/engine/probe.py",
        old="[100, 132, 133, 134, 135]",
        new="[70, 71, 102, 133, 134]",
        harm="a model that masks cache columns by a rule of its own passes and writes wrong text",
        tests="tests/test_probe.py -k do_not_obey",
    ),
    Bug(
        name="trial-of-the-first-kind-alone",
        file="specviz/engine/models/layers.py",
        old="needed = max(2, _count_to_last_kind(model, layers))",
        new="needed = 2",
        harm="a model with one wrong layer among its later ones passes",
        tests="tests/test_probe.py -k one_wrong_layer",
    ),
    Bug(
        name="positions-by-slot",
        file="specviz/engine/kv/layout.py",
        old='own row, whatever its slot."""\n        return indices',
        new='own row, whatever its slot."""\n        return self.slots(rows, indices)',
        harm="padding counts in the positions, so that a padded row writes another text",
        tests="tests/test_invariants.py -k violate_nothing",
    ),
    Bug(
        name="move-too-short",
        file="specviz/engine/strategies/eqspec.py",
        old="starts[i], n - 1))",
        new="starts[i], n - 2))",
        harm="realigning leaves the last K/V of a row behind",
        tests="tests/test_verdicts.py -k valid_run",
    ),
    Bug(
        name="rollback-keeps-one-more",
        file="specviz/engine/strategies/rollback.py",
        old="accepted.masked_fill(finished, emitted.shape[1]).min()",
        new="accepted.masked_fill(finished, emitted.shape[1]).min() + 1",
        harm="rows that rollback promises to keep together become ragged",
        tests="tests/test_strategies.py -k roll",
    ),
    Bug(
        name="pool-by-output-length",
        file="specviz/engine/strategies/exspec.py",
        old="{row.request.index: row.length for row in state.batch.live}",
        new="{row.request.index: len(row.output) for row in state.batch.live}",
        harm="EXSPEC forms groups that are not of equal length, and realigns them all the time",
        tests="tests/test_strategies.py -k exspec",
    ),
    Bug(
        name="refill-from-the-back",
        file="specviz/engine/strategies/base.py",
        old="state.waiting.popleft()",
        new="state.waiting.pop()",
        harm="the prompts given first are decoded last",
        tests="tests/test_strategies.py -k sorted",
    ),
    Bug(
        name="deterministic-width",
        file="specviz/engine/kv/deterministic.py",
        old="self._pieces(feed, self.shape.width)",
        new="self._pieces(feed, width)",
        harm="the deterministic mode writes another text with drafts than without",
        tests="tests/test_deterministic.py -k one_shape",
    ),
    Bug(
        name="auto-learns-cold-rounds",
        file="specviz/engine/auto.py",
        old="if self._first or spent.cold:",
        new="if self._first:",
        harm='"auto" takes the time of a capture for that of a round, and drafts too little',
        tests="tests/test_draft_length.py -k captured",
    ),
    Bug(
        name="lookup-past-the-end",
        file="specviz/engine/drafters/lookup.py",
        old="start + ahead % (n - start)",
        new="(start + ahead).clamp(max=longest - 1)",
        harm="prompt lookup proposes what lies behind the end of a row",
        tests="tests/test_drafters.py -k lookup",
    ),
    # record
    Bug(
        name="narrow-drafts",
        file="specviz/record/schema.py",
        old='_columns("drafts parents path", "int32", ("N", "K"))',
        new='_columns("drafts parents path", "int16", ("N", "K"))',
        harm="records hold wrong drafts where the vocabulary has more than 32,768 tokens",
        tests="tests/test_trace.py",
    ),
    Bug(
        name="replay-off-by-one",
        file="specviz/record/replay.py",
        old="state[own & (index >= length)",
        new="state[own & (index > length)",
        harm="the step-through shows the first draft of a round as stale",
        tests="tests/test_replay.py",
    ),
    Bug(
        name="save-in-place",
        file="specviz/record/trace.py",
        old="write(path, self._to_bytes())",
        new="Path(path).write_bytes(self._to_bytes())",
        harm="an interrupted save destroys the record that was there",
        tests="tests/test_trace.py -k save",
    ),
    # checks
    Bug(
        name="holes-accepted",
        file="specviz/checks/forward_rules.py",
        old="hidden.any(1) | (extra.sum(axis=1) > without_kv)",
        new="extra.sum(axis=1) > without_kv",
        harm="a mask that hides a row's own tokens passes the check",
        tests="tests/test_invariants.py -k seen",
    ),
    Bug(
        name="generous-near-tie",
        file="specviz/checks/equivalence.py",
        old="min(2 * _MARGIN",
        new="min(4 * _MARGIN",
        harm="a bug that changes a text a little passes for rounding",
        tests="tests/test_compare.py -k cause",
    ),
    Bug(
        name="window-of-slots",
        file="specviz/engine/kv/layer_masks.py",
        old="behind = visible.flip(-1).cumsum(-1).flip(-1)",
        new="behind = visible.new_ones(visible.shape).flip(-1).cumsum(-1).flip(-1)",
        harm="a window counts padding, holes and rejected drafts, and hides a row's own tokens",
        tests="tests/test_layer_masks.py -k counts_tokens",
    ),
    Bug(
        name="audit-no-later-tokens",
        file="specviz/checks/audit/verdicts.py",
        old="Evidence(finding.gap, finding.deviation, finding.later_gap)",
        new="Evidence(finding.gap, finding.deviation)",
        harm="a fault that begins at a near tie is called a near tie",
        tests="tests/test_audit.py -k behind_a_tie",
    ),
    Bug(
        name="audit-noise-of-the-fault",
        file="specviz/checks/audit/returned.py",
        old="stop = len(duo.ours) if duo.at is None else duo.at\n",
        new="stop = len(duo.ours)\n",
        harm="a fault's own change of the log-probabilities counts as noise and explains it",
        tests="tests/test_audit.py -k returned",
    ),
    Bug(
        name="audit-own-word",
        file="specviz/checks/audit/returned.py",
        old="is_bound = other is None or other[1]",
        new="is_bound = False",
        harm="a decoder that says of itself that two tokens were tied is believed",
        tests="tests/test_audit.py -k returned",
    ),
    Bug(
        name="audit-unjudged-passes",
        file="specviz/checks/audit/report.py",
        old="return not self._count(UNEXPLAINED) and not self._count(UNKNOWN)",
        new="return not self._count(UNEXPLAINED)",
        harm="a CI passes where nothing could be judged",
        tests="tests/test_audit_command.py -k nothing_judges",
    ),
    Bug(
        name="audit-behind-eos",
        file="specviz/checks/audit/ends.py",
        old="if behind is not None and endings",
        new="if behind is not None and duo.how == EQUAL and endings",
        harm="a decoder that writes on behind EOS passes",
        tests="tests/test_audit_ends.py -k an_end_is_judged",
    ),
    Bug(
        name="audit-open-end",
        file="specviz/checks/audit/ends.py",
        old="return duo if is_explained else replace(duo, unjudged=OPEN_END)",
        new="return duo",
        harm="a text that stops anywhere passes",
        tests="tests/test_audit_ends.py -k an_end_is_judged",
    ),
    Bug(
        name="audit-foreign-reference",
        file="specviz/checks/audit/verdicts.py",
        old="if max(finding.before, finding.reference_gap) > limit and",
        new="if max(finding.before, finding.reference_gap) > 1e9 and",
        harm="a right decoder is called wrong by a reference of another model",
        tests="tests/test_audit.py -k not_the_targets",
    ),
    Bug(
        name="audit-processed-scores",
        file="specviz/checks/audit/audit.py",
        old="scorer.ignored is not None",
        new="scorer.ignored is None",
        harm="a right decoder with a repetition penalty is called wrong",
        tests="tests/test_audit_ends.py -k processed",
    ),
    Bug(
        name="audit-page-unescaped",
        file="specviz/views/audit_page.py",
        old="return html.escape(str(value))",
        new="return str(value)",
        harm="a decoder's text runs script in the page",
        tests="tests/test_audit_command.py -k break_the_page",
    ),
    Bug(
        name="server-another-model",
        file="specviz/servers/protocol.py",
        old="        self._check_model(answer.model)\n",
        new="",
        harm="texts of another model are taken for those of the one asked for",
        tests="tests/test_servers.py -k model",
    ),
    Bug(
        name="server-key-repeated",
        file="specviz/servers/protocol.py",
        old='return text.replace(key, "***") if key else text',
        new="return text",
        harm="an error message shows the key that a server repeats",
        tests="tests/test_servers.py -k key",
    ),
    Bug(
        name="traffic-knows-too-much",
        file="specviz/servers/traffic.py",
        old="known[places] = accepted < drafted",
        new="known[places] = True",
        harm="a log's table claims to know what was never drafted",
        tests="tests/test_traffic.py -k 'bounds or bracket or by_hand'",
    ),
    Bug(
        name="right-drafts-vanish",
        file="specviz/checks/count_rules.py",
        old="is_judged & (gained + discarded < least)",
        new="is_judged & (gained + discarded < 0)",
        harm="a decoder that throws right drafts away passes the check",
        tests="tests/test_mutations.py -k found",
    ),
    Bug(
        name="feeds-not-counted",
        file="specviz/checks/feed_rules.py",
        old="due[:, None] & (wanted != fed)",
        new="due[:, None] & wanted & ~wanted",
        harm="a log that leaves out a draft's feed passes the check",
        tests="tests/test_mutations.py -k found",
    ),
    # costs
    Bug(
        name="head-trained-on-the-corpus",
        file="specviz/zoo/heads/mix.py",
        old='SHARES = {"greedy": 0.5, "sampled": 0.25, "corpus": 0.25}',
        new='SHARES = {"greedy": 0.25, "sampled": 0.25, "corpus": 0.5}',
        harm="heads learn texts that the target does not write, and lose on its own",
        tests="tests/test_train_heads.py -k mix",
    ),
    Bug(
        name="head-features-overflow",
        file="specviz/zoo/heads/features.py",
        old="if not features.isfinite().all():",
        new="if features.isnan().any():",
        harm="features beyond the range of float16 are kept as infinite, and trained on",
        tests="tests/test_train_heads.py -k float16",
    ),
    Bug(
        name="head-trained-on-the-inputs",
        file="specviz/zoo/heads/features.py",
        old="else states[layer + 1] for layer in layers]",
        new="else states[layer] for layer in layers]",
        harm="a head is trained on other layers than it reads when it drafts",
        tests="tests/test_train_heads.py -k those_that_heads_select",
    ),
    Bug(
        name="fit-without-offset",
        file="specviz/costs/growth.py",
        old="found: Array = offset + scale",
        new="found: Array = scale",
        harm="fitted costs leave out what does not grow with the batch",
        tests="tests/test_fit.py -k grow",
    ),
    Bug(
        name="memory-without-draft",
        file="specviz/costs/held.py",
        old='("draft K/V", ALWAYS, draft_kv)',
        new='("draft K/V", "draft", draft_kv)',
        harm="a batch that is said to fit runs out of memory",
        tests="tests/test_plan.py -k measured_peak",
    ),
    # simulation
    Bug(
        name="served-by-another-lane",
        file="specviz/simulation/serving.py",
        old="fleet.put(replica * devices + device,",
        new="fleet.put(device,",
        harm="all replicas of a simulation wait for the devices of the first",
        tests="tests/test_simulate.py",
    ),
    # metrics
    Bug(
        name="idle-rows-counted",
        file="specviz/metrics.py",
        old='    table = table[table["gained"] > 0]\n',
        new="",
        harm="finished rows lower the mean acceptance length",
        tests="tests/test_metrics.py",
    ),
    # views
    Bug(
        name="title-not-escaped",
        file="specviz/views/stepper/export.py",
        old="<title>{html.escape(title)}</title>",
        new="<title>{title}</title>",
        harm="a title with markup runs in the reader's browser",
        tests="tests/test_stepper.py -k breaks_out",
    ),
    Bug(
        name="film-of-another-step",
        file="specviz/views/stepper/camera.py",
        old='"feeds": self.feeds.runs[stage]',
        new='"feeds": self.feeds.runs[stage - 1]',
        harm="the step-through shows what was read in the phase before",
        tests="tests/test_film.py",
    ),
    # generation
    Bug(
        name="record-not-checked",
        file="specviz/generation/generate.py",
        old='    require_bool("record", record)\n',
        new="",
        harm='record="no" records',
        tests="tests/test_bad_calls.py",
    ),
    Bug(
        name="half-a-round-recorded",
        file="specviz/generation/collect.py",
        old="        if self.recorder is not None:\n            self.recorder.cut(self.rounds)\n",
        new="",
        harm="an interrupted run loses its record, which contradicts itself",
        tests="tests/test_interrupt.py",
    ),
    # bench
    Bug(
        name="resume-repeats-a-cell",
        file="specviz/bench/running.py",
        old="done = _by_key(log.measurements)",
        new="done = _by_key(log.measurements[1:])",
        harm="an interrupted benchmark measures its first cell again",
        tests="tests/test_bench.py -k goes_on",
    ),
    # studies
    Bug(
        name="conditions-mixed",
        file="specviz/studies/resume.py",
        old="if before.get(name) != conditions.get(name)]",
        new="if (name in before) != (name in conditions)]",
        harm="a table holds results of different conditions",
        tests="tests/test_agreement.py -k taken_over",
    ),
    # cli
    Bug(
        name="interrupted-like-failed",
        file="specviz/cli/exit.py",
        old="_report(options, INTERRUPTED,",
        new="_report(options, FAILED,",
        harm="a shell loop goes on after Ctrl-C",
        tests="tests/test_cli.py -k ways_to_end",
    ),
    # util
    Bug(
        name="folder-not-whole",
        file="specviz/util/files.py",
        old="fill(partial)\n            if path.exists():\n                path.rename(old)\n",
        new="if path.exists():\n                path.rename(old)\n            fill(partial)\n",
        harm="the old folder is gone when the new one cannot be written",
        tests="tests/test_bad_calls.py -k folder",
    ),
    # prompts
    Bug(
        name="prompts-of-the-first-half",
        file="specviz/prompts.py",
        old="items[i * len(items) // count]",
        new="items[i * (len(items) // count)]",
        harm="a benchmark with a limit never reaches the last categories",
        tests="tests/test_bench.py -k command_measures",
    ),
    # zoo
    Bug(
        name="optimiser-not-resumed",
        file="specviz/zoo/checkpoint.py",
        old="        _restore_optimiser(optimiser, own)\n",
        new="",
        harm="a resumed training begins with empty moments and ends with another model",
        tests="tests/test_zoo.py -k interrupted",
    ),
    Bug(
        name="loss-one-token-late",
        file="specviz/zoo/heads/loss.py",
        old="places = batch.starts + step\n",
        new="places = batch.starts + step + 1\n",
        harm="a head learns to propose the token behind the next one",
        tests="tests/test_train_heads.py -k least",
    ),
    Bug(
        name="features-of-another-target",
        file="specviz/zoo/heads/features.py",
        old="if _header(path) != header:",
        new="if _header(path) is None:",
        harm="a head is trained on features that its target does not have",
        tests="tests/test_train_heads.py -k computed_once",
    ),
    # exercises
    Bug(
        name="stub-passes",
        file="specviz/exercises/base.py",
        old='print(wrapped(f"not yet: {missing}"))\n',
        new='print(wrapped(f"not yet: {missing}"))\n            return True\n',
        harm="an exercise that was not solved counts as solved",
        tests="tests/test_exercises.py -k missing",
    ),
    # audits of samplers
    Bug(
        name="evidence-of-a-draw-by-itself",
        file="specviz/checks/sampling/evidence.py",
        old="groupby(groups).cumcount().to_numpy()",
        new="groupby(groups).cumcount().to_numpy() + 1",
        harm="right decoders are called wrong more often than alpha says",
        tests="tests/test_audit_sampling.py -k expectation",
    ),
    Bug(
        name="rejected-draft-counts-as-accepted",
        file="specviz/checks/sampling/rounds.py",
        old="accepted = verified.gained > step + 1",
        new="accepted = verified.gained >= step + 1",
        harm="the cause of wrong texts is named wrongly",
        tests="tests/test_audit_sampling.py -k faults_are_found",
    ),
)


def copy_repository(to: Path) -> Path:
    """Copy what tests may read, without environments and caches. Return the copy's root."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "runs", "training")
    return Path(shutil.copytree(ROOT, to, ignore=ignored))


def environment(copy: Path) -> dict[str, str]:
    """Return the variables under which Python imports specviz from the copy."""
    return {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}


def imported_from(copy: Path) -> Path:
    """Return the file that `import specviz` reads in a process that tests the copy."""
    code = "from importlib.util import find_spec; print(find_spec('specviz').origin)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=copy,
        env=environment(copy),
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(done.stdout.strip())


def run_tests(copy: Path, *arguments: str) -> tuple[int | None, str]:
    """Run pytest in the copy. Return its exit status, None if the tests hang, and its output."""
    # The cache keeps which tests failed, see `fail_anyway`.
    cache = f"cache_dir={copy.parent / 'cache'}"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-m", FAST, "-o", cache, *arguments],
            cwd=copy,
            env=environment(copy),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"the tests took more than {LIMIT_S} s"
    return done.returncode, done.stdout + done.stderr


def verdict(bug: Bug, copy: Path) -> str:
    """Plant a bug in the copy, run its tests, remove it again, and say what came of it."""
    path = copy / bug.file
    text = path.read_text(encoding="utf-8")
    try:
        planted = bug.planted(text)
    except ValueError as error:
        return f"cannot be applied: {error}"
    # The file gets a new time, as it does below, so that no bytecode of another text is used.
    path.write_text(planted, encoding="utf-8")
    try:
        status, output = run_tests(copy, "-x", *shlex.split(bug.tests))
    finally:
        path.write_text(text, encoding="utf-8")
    if status == FAILED:
        return CAUGHT
    if status == PASSED or status is None:
        return f"NOT CAUGHT by {bug.tests}: {bug.harm}"
    return f"cannot be judged: pytest ended with {status}\n{output[-2000:]}"


def fail_anyway(copy: Path) -> str:
    """Run what failed once more, without a bug. Return pytest's output if some of it fails."""
    # A test that failed for one bug and passed for another is not run again: it can pass.
    status, output = run_tests(copy, "--last-failed", "--last-failed-no-failures=none", "tests")
    return "" if status in (PASSED, NO_TESTS) else output[-2000:]


def main(names: Sequence[str]) -> int:
    """Try the named bugs, or all; return 0 if every one of them is caught."""
    known = [bug.name for bug in BUGS]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"{unknown[0]!r} is not a bug of the list; choose from {', '.join(known)}")
        return 2
    chosen = [bug for bug in BUGS if not names or bug.name in names]
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_repository(Path(folder).resolve() / "specviz-with-a-bug")
        origin = imported_from(copy)
        if not origin.is_relative_to(copy):
            print(f"specviz is imported from {origin}, not from the copy in {copy}")
            return 2
        caught = 0
        for bug in chosen:
            begun = time.monotonic()
            said = verdict(bug, copy)
            caught += said == CAUGHT
            print(f"{bug.name:25} {time.monotonic() - begun:5.1f} s  {said}", flush=True)
        print(f"{caught} of {len(chosen)} bugs are caught")
        failures = fail_anyway(copy)
    if failures:
        print(f"but some of these tests fail without a bug, too:\n{failures}")
    return 1 if failures or caught < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
