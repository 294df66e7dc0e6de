"""The invariants of batch speculative decoding, checked on a record alone.

Contract: `check` takes a trace and returns what does not hold. It assumes nothing about the
strategy but what its record says, so your own is judged like the built-in ones. Not known here:
models.

| rules | where they stand |
|---|---|
| positions, mask, kv, caches | `forward_rules`, called on the walk through all forwards in
`forwards`; what a round has to feed in `feed_rules` |
| rectangle | `layout_rules`, and of what is moved `move_rules` |
| lengths, budget, eos | `row_rules` |
| acceptance, bonus | `token_rules`; their numbers in `count_rules`, draws in `draw_rules` |
| drafts | `draft_rules`; how they hang together in `tree_rules` |
| verification, foresight | `selection_rules` |
| scores | `score_rules` |
| schedule | `pool_rules` |

With the models, `rerun` checks kv, and `rescore` scores, drafts, acceptance and bonus.

`violations.RULES` says what each rule demands. Sources: arXiv 2510.22876 for the rectangle (I1) and
the positions (I2). The other rules state what that paper's text needs for its updates to be right.

These are not violations: padding that accumulates, verified tokens that are thrown away, and wrong
K/V that no forward looks at any more.
"""

from collections.abc import Callable

from specviz.checks.count_rules import counts_add_up
from specviz.checks.draft_rules import drafts
from specviz.checks.draw_rules import draws_are_the_seeds
from specviz.checks.feed_rules import fed_once
from specviz.checks.forwards import Forwards
from specviz.checks.layout_rules import rectangle
from specviz.checks.ledger import ExpectedKV
from specviz.checks.move_rules import moves_fit
from specviz.checks.pool_rules import schedule
from specviz.checks.row_rules import budget, eos, lengths, status
from specviz.checks.rows import Rows
from specviz.checks.score_rules import scores
from specviz.checks.selection_rules import foresight, verification
from specviz.checks.token_rules import acceptance, bonus
from specviz.checks.tree_rules import drafts_form_a_tree
from specviz.checks.violations import Findings
from specviz.record.replay import head_of
from specviz.record.trace import Trace

ROW_RULES = (
    lengths,
    rectangle,
    moves_fit,
    fed_once,
    acceptance,
    counts_add_up,
    bonus,
    draws_are_the_seeds,
    budget,
    eos,
    status,
    drafts,
    drafts_form_a_tree,
    verification,
    foresight,
    scores,
    schedule,
)


def check(trace: Trace) -> tuple[Findings, Callable[[], list[ExpectedKV]]]:
    """Return all findings, and what says where each row's K/V should be after each round."""
    findings = Findings(head_of(trace.meta))
    forwards = Forwards(trace, findings)
    forwards.run()
    # Afterwards, because some of these keep silent about what a forward has shown already.
    rows = Rows(trace, findings)
    for rule in ROW_RULES:
        rule(rows)
    return findings, forwards.expected_kv
