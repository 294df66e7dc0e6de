"""The invariants of batch speculative decoding, checked on a record alone.

Contract: `check` takes a trace and returns what does not hold. It assumes nothing about the
strategy but what its record says, so your own is judged like the built-in ones. Not known here:
models.

| rules | where they stand |
|---|---|
| positions, mask, kv, caches | `forward_rules`, called on the walk through all forwards in
`forwards`; what a round has to feed in `rules_feeds` |
| lengths, budget, eos, rectangle | `rules_rows`; what is moved in `rules_feeds` |
| acceptance, bonus | `rules_tokens` |
| state, window | `rules_states` |
| drafts, verification, foresight, scores | `rules_drafts` |
| schedule | `pool_rules` |

With the models, `rerun` checks kv, and `rescore` scores, drafts, acceptance and bonus.

`violations.RULES` says what each rule demands. Sources: arXiv 2510.22876 for the rectangle (I1) and
the positions (I2). The other rules state what that paper's text needs for its updates to be right.

These are not violations: padding that accumulates, verified tokens that are thrown away, and wrong
K/V that no forward looks at any more.
"""

from collections.abc import Callable

from specviz.checks import rules_drafts, rules_feeds, rules_rows, rules_states, rules_tokens
from specviz.checks.forwards import Forwards
from specviz.checks.pool_rules import schedule
from specviz.checks.rule import rules_of
from specviz.checks.table import RoundTable
from specviz.checks.violations import Findings
from specviz.record.replay import head_of
from specviz.record.trace import Trace

CHECKS: tuple[Callable[[RoundTable], None], ...] = (
    *[rule.check for rule in rules_of(rules_rows)],
    rules_feeds.moves_fit,
    rules_feeds.fed_once,
    *[rule.check for rule in rules_of(rules_tokens)],
    *[rule.check for rule in rules_of(rules_drafts)],
    rules_feeds.nodes_are_the_drafts,
    rules_states.states_follow_the_row,
    rules_states.windows_hold_the_last_tokens,
    rules_drafts.check_scores,
    schedule,
)


def check(trace: Trace) -> tuple[Findings, Forwards]:
    """Return all findings, and the walk through all forwards that has found a part of them."""
    findings = Findings(head_of(trace.meta))
    forwards = Forwards(trace, findings)
    forwards.run()
    # Afterwards, because some of these keep silent about what a forward has shown already.
    table = RoundTable(trace, findings)
    for check_table in CHECKS:
        check_table(table)
    return findings, forwards
