"""docs/models.md: what came of each family of causal LMs, from the outcomes of families.py."""

import datetime
from collections import Counter
from pathlib import Path

import torch
import transformers
from families import ATTENTIONS, STRATEGIES, Outcome

PAGE = Path(__file__).parents[1] / "docs" / "models.md"

INTRO = """\
# Models

Which causal LMs of transformers specviz decodes. `PYTHONPATH=tests python -m families` writes this
page ({date}, CPU, float32, torch {torch}, transformers {transformers}).

Each family is built tiny from its configuration, with random weights, and drafts with a perturbed
copy of itself. It has a layer of each type that its default configuration has, and windows shorter
than the prompts. Five strategies ({strategies}) decode
five prompts in batches of four. A family is *exact* if every text equals that of `generate` for the
prompt alone, and *refused* if specviz says why before it writes anything. None ended in another
error.

A family whose default configuration is refused is tried again with full attention in every layer,
and as a decoder if it is BERT's kind. "-" means that it has no such configuration, or is refused
for the same reason.

Of {all} families, {exact} are exact by default, {other} more with full attention or as a decoder,
{refused} are refused, {not_built} cannot be built, and {wrong} write a wrong text.
"""


def page(outcomes: list[Outcome]) -> str:
    """Return docs/models.md."""
    families = {each.family: Family(outcomes, each.family) for each in outcomes}
    counts = Counter(family.group for family in families.values())
    text = INTRO.format(
        date=datetime.date.today(),
        torch=torch.__version__.split("+")[0],
        transformers=transformers.__version__,
        strategies=", ".join(STRATEGIES),
        all=len(families),
        exact=counts["exact"],
        other=counts["other"],
        refused=counts["refused"],
        not_built=counts["not built"],
        wrong=counts["wrong"],
    )
    for group, title, columns in (
        ("wrong", "Wrong", ("family", "class", "what")),
        ("exact", "Exact", ("family", "class", "sdpa", "eager")),
        ("other", "Exact if configured so", ("family", "class", "exact with", "by default")),
        ("refused", "Refused", ("family", "class", "why", "otherwise")),
        ("not built", "Not built", ("family", "why")),
    ):
        rows = [family.row() for family in families.values() if family.group == group]
        if rows:
            text += f"\n## {title}\n\n{_line(columns)}|{'---|' * len(columns)}\n"
            text += "".join(map(_line, rows))
    return text


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


class Family:
    """The outcomes of one family: by attention, by default and otherwise."""

    def __init__(self, outcomes: list[Outcome], name: str) -> None:
        own = [each for each in outcomes if each.family == name]
        self.name = name
        self.model = next((each.model for each in own if each.model), "")
        self.default = {each.attention: each for each in own if not each.changes}
        self.other = {each.attention: each for each in own if each.changes}

    @property
    def group(self) -> str:
        """The worst of the outcomes by default; "other" if it is only refused by default."""
        default = {each.outcome for each in self.default.values()}
        other = {each.outcome for each in self.other.values()}
        if "wrong" in default | other:
            return "wrong"
        if "refused" in default:
            return "other" if "exact" in other else "refused"
        return "exact" if "exact" in default else "not built"

    def row(self) -> list[str]:
        """The family's cells in the table of its group."""
        why = _reasons(self.default)
        if self.group == "not built":
            return [self.name, why]
        if self.group == "exact":
            cells = [_cell(self.default[attention]) for attention in ATTENTIONS]
            return [self.name, self.model, *cells]
        if self.group == "other":
            exact = [each for each in self.other.values() if each.outcome == "exact"]
            attentions = " and ".join(each.attention for each in exact)
            return [self.name, self.model, f"{exact[0].changes} ({attentions})", why]
        # Only what was built and fails for another reason.
        built = {name: each for name, each in self.other.items() if each.outcome == "refused"}
        otherwise = _reasons(built)
        return [self.name, self.model, why, "-" if otherwise in ("", why) else otherwise]


def _cell(outcome: Outcome) -> str:
    """Return "exact", or why not."""
    return outcome.reason.split("; ")[0] or outcome.outcome


def _reasons(outcomes: dict[str, Outcome]) -> str:
    """Return what was wrong, once if it was the same with both kinds of attention."""
    reasons: dict[str, list[str]] = {}
    for attention, outcome in outcomes.items():
        reason = outcome.reason.split("; ")[0]
        if outcome.outcome != "exact" and "has no sdpa" not in reason:
            reasons.setdefault(reason, []).append(attention)
    if len(reasons) == 1:
        return next(iter(reasons))
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
