"""Draft heads: small modules that draft from the target's own hidden states.

Index convention: entry j of a head belongs to token j of a row and to the target's feature of token
j - 1; entry 0 takes a zero feature. So drafting starts at the pending token n - 1 with the feature
of token n - 2, the last one that is known, and step s proposes token n + s. In DFlash, entry j
reads the feature of token j itself, and the pending token has none.
"""

from specviz.engine.heads.build import build_head
from specviz.engine.heads.dflash import DFlashHead
from specviz.engine.heads.modules import DraftHead, EagleHead, ResidualHeads
from specviz.engine.heads.mtp import MtpHead
from specviz.engine.heads.settings import GATES, KINDS, LAST, HeadSettings

__all__ = [
    "GATES",
    "KINDS",
    "LAST",
    "DFlashHead",
    "DraftHead",
    "EagleHead",
    "HeadSettings",
    "MtpHead",
    "ResidualHeads",
    "build_head",
]
