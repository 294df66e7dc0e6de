"""Draft heads: small modules that draft from the target's own hidden states.

Index convention, for all of them: entry j of a head belongs to token j of a row and to the target's
feature of token j - 1; entry 0 takes a zero feature. So drafting starts at the pending token n - 1
with the feature of token n - 2, the last one that is known, and step s proposes token n + s.
"""

from specviz.engine.heads.modules import DraftHead, EagleHead, ResidualHeads, build_head
from specviz.engine.heads.settings import GATES, KINDS, LAST, HeadSettings

__all__ = [
    "GATES",
    "KINDS",
    "LAST",
    "DraftHead",
    "EagleHead",
    "HeadSettings",
    "ResidualHeads",
    "build_head",
]
