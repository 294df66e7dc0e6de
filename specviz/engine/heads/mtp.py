"""MTP layers as a draft head: the layers that some checkpoints have behind their own.

Entry j of layer k reads token j and what layer k - 1 made of token j - 1; of layer 0, that is the
target's last hidden state. So layer k has no entries 0..k, and step k of a chain is layer k. A
chain of more steps than layers goes on with the last layer's own output.

Sources: DeepSeek-V3 (arXiv 2412.19437), section 2.2; `MtpModel` of transformers, whose layers these
are. There an entry has the number of the hidden state that layer 0 began with, k + 1 less than
here, and the same position.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_layers import MtpModel

from specviz.engine.heads.modules import DraftHead, HeadOutput
from specviz.engine.heads.settings import HeadSettings
from specviz.engine.models.compat import FULL, HYBRIDS, STATES, layer_types, read_setting
from specviz.util.validate import short

# Under which names configurations say how many MTP layers a checkpoint has.
COUNTS = ("num_mtp_layers", "num_nextn_predict_layers", "mtp_num_hidden_layers")


class MtpHead(DraftHead):
    """The MTP layers of a target.

    Args:
        mtp: the layers; all that they share with the target stays the target's.
    """

    def __init__(self, settings: HeadSettings, mtp: MtpModel) -> None:
        super().__init__(settings, mtp.config)
        self.layers = mtp.layers
        self.kind_of_layers: type = type(mtp.layers[0].mtp_block)
        self.shared_post_norm = mtp.shared_post_norm if mtp.use_shared_post_norm else None
        # A tuple, so that the target's own modules are neither saved nor moved.
        self._mtp = (mtp,)

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True  # as its layers' own models can

    def forward(
        self,
        input_ids: Tensor,
        features: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | dict[str, Tensor] | None = None,
        use_cache: bool = True,
        logits_to_keep: int = 1,
        layer: int = 0,
        **arguments: Any,
    ) -> HeadOutput:
        """Read entries with one layer; return the last logits, and what it made of all entries.

        Args:
            input_ids: (b, q), the entries' tokens.
            features: (b, q, D), what the layer before made of the token before each of them.
            position_ids: (b, q).
            attention_mask: of the layer, or of each type of layer.
            arguments: the cache, as transformers' attention takes it.
        """
        mtp = self._mtp[0]
        embedded = mtp.embed_tokens(input_ids).to(features.device)
        types = read_setting(self.config, "layer_types")
        if isinstance(attention_mask, dict):
            only = next(iter(attention_mask.values()))
            attention_mask = attention_mask[types[layer]] if types else only
        hidden = self.layers[layer](
            embedded,
            features,
            position_embeddings=rotation(mtp, embedded, position_ids, layer),
            attention_mask=attention_mask,
            position_ids=position_ids,
            **arguments,
        )
        if self.shared_post_norm is not None:
            hidden = self.shared_post_norm(hidden)
        kept = hidden[:, hidden.shape[1] - logits_to_keep :]
        return HeadOutput(mtp._project_to_logits(kept), hidden)


def rotation(
    mtp: MtpModel, like: Tensor, position_ids: Tensor, layer: int
) -> tuple[Tensor, Tensor] | None:
    """Return cosines and sines at positions (b, q) for a layer; None where there is no rotation.

    like: a tensor of the wanted dtype and device.
    """
    if mtp.rotary_emb is None:
        return None
    if hasattr(mtp.rotary_emb, "mrope_section"):  # of a text, the same in all directions
        position_ids = position_ids.expand(3, -1, -1)
    by_layer = getattr(mtp, "has_per_layer_rope", False)
    more = {"layer_type": mtp.config.layer_types[layer]} if by_layer else {}
    cos, sin = mtp.rotary_emb(like, position_ids=position_ids, **more)
    return cos, sin


def count_layers(target: PreTrainedModel) -> int:
    """Return how many MTP layers the target's checkpoint has, as its configuration says."""
    config = target.config.get_text_config()
    return next((count for name in COUNTS if (count := read_setting(config, name))), 0)


def make_mtp(target: PreTrainedModel, num_layers: int) -> MtpModel:
    """Return MTP layers of the target's kind, with random weights.

    Raises:
        ValueError: the target's layers cannot be MTP layers.
    """
    try:
        with declared(target, num_layers):
            mtp = MtpModel(target, num_layers)
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"target={type(target).__name__} has layers that cannot be MTP layers ({error}); "
            "pass another drafter"
        ) from None
    _check_kept(mtp, target)
    for module in mtp.layers.modules():  # only the target's class knows how to begin with each
        target._init_weights(module)
    return mtp


def read_mtp(target: PreTrainedModel) -> MtpModel:
    """Return the MTP layers in the target's own checkpoint.

    Raises:
        ValueError: there are none, or transformers cannot read them.
    """
    name = f"target={type(target).__name__}"
    count = count_layers(target)
    if not count:
        raise ValueError(
            f"{name} has a config that states no MTP layers ({', '.join(COUNTS)}); pass a folder "
            "with a head, or another target"
        )
    place = {"": target.get_output_embeddings().weight.device}
    try:
        with declared(target, count):
            mtp = MtpModel.from_pretrained(target, device_map=place)
    except (OSError, RuntimeError, TypeError, AttributeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"the MTP layers of {name} cannot be read from {short(target.name_or_path)} "
            f"({reason}); load the target from a checkpoint that has them"
        ) from None
    _check_kept(mtp, target)
    return mtp


def _check_kept(mtp: MtpModel, target: PreTrainedModel) -> None:
    """Raise ValueError if what the layers remember cannot be kept."""
    several = any(
        (getattr(each, "layer_idx", 0) or 0) >= len(mtp.layers) for each in mtp.layers.modules()
    )
    states = layer_types(mtp.config) & (STATES | HYBRIDS)
    if several or states:
        kind = f"of type {', '.join(sorted(states))}" if states else "with several attentions each"
        raise ValueError(
            f"target={type(target).__name__} has MTP layers {kind}, which specviz cannot keep in "
            "step yet; pass another drafter"
        )


@contextmanager
def declared(target: PreTrainedModel, num_layers: int) -> Iterator[None]:
    """Let the target's configuration say that there are so many MTP layers.

    transformers asks it when it makes them, and some configurations do not say.
    """
    config = target.config.get_text_config()
    before = dict(vars(config))
    try:
        config.num_mtp_layers = num_layers
        # Where nothing else is said, they attend to all tokens and are like the last layer.
        for name, kind in {"layer_types": FULL, "mlp_layer_types": None}.items():
            stated = read_setting(config, name)
            if stated and len(read_setting(config, f"mtp_{name}") or ()) != num_layers:
                setattr(config, f"mtp_{name}", [kind or stated[-1]] * num_layers)
        yield
    finally:
        for name in vars(config).keys() - before.keys():
            delattr(config, name)
        vars(config).update(before)
