"""A target, a draft and their tokenizer.

The pair may be the embedded one, come from folders or the hub, or be made of two models in memory.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import is_accelerate_available, logging

from specviz.engine.heads.build import own_head
from specviz.engine.heads.files import FolderOfHeads, check_heads, head_folders, read_head
from specviz.engine.heads.modules import DraftHead
from specviz.engine.models.compat import (
    check_model,
    check_tokenizers,
    check_vocabularies,
    input_device,
    position_limit,
    vocabulary_sizes,
)
from specviz.engine.models.hub import find
from specviz.engine.models.settings import describe_ignored
from specviz.util.validate import require_choice, require_kind, require_path, short

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
DeviceMap = str | Mapping[str, int | str]
HYBRID = "hybrid"  # the name of a pair that ships with specviz, and its folder


@dataclass(frozen=True, repr=False)
class Pair:
    """Two causal LMs over one vocabulary, or one with heads. They are put into evaluation mode.

    Their embeddings may be padded to different sizes if the tokenizer has no id beyond the smaller
    one; `notes` then says so.

    Attributes:
        target: the model whose text is wanted.
        draft: the smaller model that proposes; without one, the target itself.
        tokenizer: of both models; None if prompts are token ids and no text is wanted.
        heads: draft heads of the target by the names of their drafters, see `load_heads`.

    Raises:
        ValueError, TypeError: the models cannot be decoded together; the message says why and what
            to choose instead.
    """

    target: PreTrainedModel
    draft: PreTrainedModel = None
    tokenizer: PreTrainedTokenizerBase | None = None
    heads: Mapping[str, DraftHead] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_model("target", self.target)
        if self.draft is None:
            object.__setattr__(self, "draft", self.target)
        check_model("draft", self.draft)
        check_vocabularies(self.target, self.draft, self.tokenizer)
        draft_device = input_device(self.draft)
        if draft_device != self.device:
            raise ValueError(
                f"draft is on {draft_device}, target on {self.device}; "
                f"move one of them, for instance draft.to({str(self.device)!r})"
            )
        # Those of a folder are checked when they are read.
        if not isinstance(self.heads, FolderOfHeads):
            check_heads(self.heads, self.target)
        self.target.eval()
        self.draft.eval()

    def __repr__(self) -> str:
        models = (self.target, self.draft)
        dtypes = dict.fromkeys(str(model.dtype).removeprefix("torch.") for model in models)
        return (
            f"Pair(target={_describe(self.target)}, draft={_describe(self.draft)}, "
            f"vocabulary_size={self.vocabulary_size}, device={self.device}, "
            f"dtype={'/'.join(dtypes)})"
        )

    @property
    def device(self) -> torch.device:
        """The device of both models' inputs and of the loop's state.

        With a `device_map` other layers of the target are on other devices.
        """
        return input_device(self.target)

    @property
    def vocabulary_size(self) -> int:
        """V: the number of ids that both models have.

        Where their embeddings are padded to different sizes, logits beyond V are cut, so no such id
        is proposed or emitted. What is cut is padding: no training text contains these ids, so a
        trained target does not choose them, and cutting them does not change its text.
        """
        return min(vocabulary_sizes(self.target, self.draft))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the pair that a report should show; empty for most pairs."""
        target, draft = vocabulary_sizes(self.target, self.draft)
        notes = []
        if target != draft:
            notes.append(
                f"The embeddings are padded to different sizes, target {target} and draft {draft}: "
                f"ids from {min(target, draft)} are cut."
            )
        notes += filter(None, [describe_ignored(self.target)])
        return tuple(notes)

    @property
    def eos_token_ids(self) -> list[int]:
        """The ids that end a row: those of the target's generation config, as in `generate()`."""
        config = getattr(self.target, "generation_config", None) or self.target.config
        ids = config.eos_token_id
        if ids is None:
            return []
        return [ids] if isinstance(ids, int) else list(ids)

    @property
    def max_positions(self) -> int | None:
        """Positions that both models have; None if neither states a limit."""
        limits = [position_limit(model) for model in (self.target, self.draft)]
        return min((limit for limit in limits if limit is not None), default=None)


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    device_map: DeviceMap | None = None,
) -> Pair:
    """Load a pair.

    Weights are read from safetensors alone, and no code that comes with a model is run.

    Args:
        target, draft: hub ids or local folders of two causal LMs. Two pairs ship with specviz and
            need no network: both None for the embedded pair, of Llama's kind; target="hybrid" alone
            for a target whose layers keep states and a draft whose layers have windows. draft=None
            for another target that drafts without a model, as by its MTP layers; see `load_heads`.
        device: "cpu", "cuda", "cuda:1", "mps"; None for CUDA where available, else the CPU.
        dtype: "float32", "bfloat16", "float16" or "float64"; None for float32 (pairs that ship with
            specviz) or the checkpoints' own.
        device_map: instead of `device`, for a target that needs several GPUs: "auto", "balanced",
            "balanced_low_0", "sequential", or a dict from the target's modules to devices. The
            whole draft goes to the device of the target's inputs. Needs accelerate (pip install
            "specviz[accelerate]").

    Raises:
        ValueError: only a draft is given, a model cannot be loaded, the device or dtype is unknown
            or absent, or the two models do not fit together.
        FileNotFoundError: a folder does not exist, or holds no model.
        ImportError: `device_map` without accelerate.
    """
    is_hybrid = draft is None and isinstance(target, str) and target == HYBRID
    ships = target is None or is_hybrid
    if target is None and draft is not None:
        raise ValueError(
            f"target=None with draft={short(draft)}; give a target too, neither for the embedded "
            "pair, or target='hybrid' alone"
        )
    if draft is None and isinstance(target, str) and not ships and _resembles_hybrid(target):
        raise ValueError(
            f"target={target!r} is not a folder, and the pair that ships has another name; pass "
            "target='hybrid', or a hub id as owner/name"
        )
    found_device = None
    if device_map is None:
        found_device = find_device(device)
    else:
        _check_device_map(device_map, device)
    found_dtype: torch.dtype | str = torch.float32 if ships else "auto"
    if dtype is not None:
        found_dtype = DTYPES[require_choice("dtype", dtype, DTYPES)]
    if ships:
        folder = Path(str(resources.files("specviz") / "zoo" / "weights"))
        folder = folder / HYBRID if is_hybrid else folder
        with _no_progress_bars():
            paths = folder / "target", folder / "draft"
            pair = _load(*paths, found_dtype, found_device, device_map)
        if is_hybrid:
            return pair
        return replace(pair, heads=FolderOfHeads(folder / "heads", pair.target))
    assert target is not None
    return _load(target, draft, found_dtype, found_device, device_map)


def load_heads(folder: str | Path | None, pair: Pair) -> Pair:
    """Return `pair` with the draft heads in `folder`, for `drafter="eagle3"` and the like.

    Weights are read from safetensors alone. A head replaces the pair's own one of its kind.

    Args:
        folder: a folder that `zoo.heads.export_head` wrote, or as others publish heads: of one
            head, or of several, each in a folder of its own. None for the MTP layers in the
            target's own checkpoint, for `drafter="mtp"`.
        pair: its target must be the one that the heads were trained on.

    Raises:
        FileNotFoundError: the folder does not exist, or holds no head.
        ValueError: an argument cannot be used, a file is damaged, or a head was trained on another
            target.
    """
    require_kind("pair", pair, Pair, "use load_pair()")
    found = dict(pair.heads)
    if folder is None:
        return replace(pair, heads={**found, "mtp": own_head(pair.target)})
    for each in head_folders(require_path("folder", folder)):
        head = read_head(each, pair.target)
        found[head.settings.kind] = head
    return replace(pair, heads=found)


def _load(
    target: str | Path,
    draft: str | Path | None,
    dtype: torch.dtype | str,
    device: torch.device | None,
    device_map: DeviceMap | None,
) -> Pair:
    """Load the models and check their tokenizers. One of `device` and `device_map` is None."""
    sources = [find("target", target)]
    if draft is not None:
        sources.append(find("draft", draft))
    tokenizers = [source.load(AutoTokenizer) for source in sources]
    check_tokenizers(tokenizers[0], tokenizers[-1])
    places: dict[str, object] = {}
    if device_map is not None:
        places["device_map"] = device_map if isinstance(device_map, str) else dict(device_map)
    how = {"dtype": dtype, "use_safetensors": True}
    # The target first: only then is it known where a device_map has put its embedding.
    target_model = sources[0].load(AutoModelForCausalLM, **how, **places)
    if device is not None:
        target_model = target_model.to(device)
    if draft is None:
        return Pair(target_model, tokenizer=tokenizers[0])
    draft_model = sources[1].load(AutoModelForCausalLM, **how).to(input_device(target_model))
    if len(set(vocabulary_sizes(target_model, draft_model))) == 2:
        # Pair checks with the target's tokenizer that only padding differs; check with the draft's.
        check_vocabularies(target_model, draft_model, tokenizers[1])
    return Pair(target_model, draft_model, tokenizers[0])


def _resembles_hybrid(name: str) -> bool:
    return bool(get_close_matches(name, [HYBRID])) and not Path(name).exists()


def _describe(model: PreTrainedModel) -> str:
    """Return name, class and parameters: "Qwen/Qwen3-8B (Qwen3ForCausalLM, 8.2B)".

    A model made in memory has no name: "Qwen3ForCausalLM 8.2B".
    """
    parameters = float(sum(parameter.numel() for parameter in model.parameters()))
    count = f"{parameters:.3g}"
    for unit, size in (("K", 1e3), ("M", 1e6), ("B", 1e9)):
        if parameters >= size:
            count = f"{parameters / size:.3g}{unit}"
    path = Path(model.name_or_path)
    name = path.name if path.is_absolute() else str(model.name_or_path)
    kind = type(model).__name__
    return f"{name} ({kind}, {count})" if name else f"{kind} {count}"


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Hide transformers' progress bars: the embedded pair loads in a fraction of a second."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def find_device(name: str | None, argument: str = "device") -> torch.device:
    """Return the device of that name; for None, CUDA where available, else the CPU.

    Raises ValueError if the device is unknown or absent. argument: what the message calls it.
    """
    has_cuda = torch.cuda.is_available()
    present = ["cpu"]
    if has_cuda:
        present += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        present.append("mps")
    if name is None:
        return torch.device("cuda:0" if has_cuda else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError, OverflowError, ValueError):
        raise ValueError(
            f"{argument}={short(name)} is unknown; "
            f"pass one that this machine has: {', '.join(present)}"
        ) from None
    # A machine has one CPU and one MPS device, which may also be called cpu:0 and mps:0.
    is_single = device.type in ("cpu", "mps") and not device.index
    full_name = device.type if is_single else f"{device.type}:{device.index or 0}"
    if full_name not in present:
        raise ValueError(
            f"{argument}={short(name)} is not there; "
            f"pass one that this machine has: {', '.join(present)}"
        )
    return torch.device(device.type) if is_single else device


def _check_device_map(device_map: object, device: str | None) -> None:
    """Raise ValueError or ImportError, as `load_pair`, for one that cannot be used."""
    if device is not None:
        raise ValueError(
            f"device={short(device)} and device_map={short(device_map)} exclude each other; "
            "leave one out"
        )
    if isinstance(device_map, str) and device_map not in DEVICE_MAPS:
        raise ValueError(
            f"device_map={short(device_map)} is unknown; choose one of {', '.join(DEVICE_MAPS)}, "
            "or a dict from modules to devices; for one device pass device="
        )
    if not isinstance(device_map, str | Mapping) or not device_map:
        raise ValueError(
            f"device_map must be a str or a dict, got {short(device_map)}; "
            f"pass one of {', '.join(DEVICE_MAPS)}, or a dict from modules to devices"
        )
    if isinstance(device_map, Mapping):
        for place in device_map.values():
            if place != "disk":
                find_device(f"cuda:{place}" if isinstance(place, int) else place, "device_map")
    if not is_accelerate_available():
        raise ImportError(
            f"device_map={device_map!r} needs accelerate, which is not installed; "
            'run: pip install "specviz[accelerate]"'
        )
