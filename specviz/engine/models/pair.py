"""A target, a draft and their tokenizer: the embedded pair, pairs from folders or the hub, and any two models already in memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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

from specviz.engine.models.compat import (
    check_model,
    check_same_device,
    check_tokenizers,
    check_vocabularies,
    input_device,
    vocabulary_sizes,
)
from specviz.engine.models.hub import find

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")

DeviceMap = str | Mapping[str, int | str]


@dataclass(frozen=True, repr=False)
class Pair:
    """Two causal LMs over one vocabulary. Both are put into evaluation mode.

    Their embeddings may be padded to different sizes, if the tokenizer names no id beyond the smaller one; `notes` then says so.

    Attributes:
        target: the model whose text is wanted.
        draft: the smaller model that proposes.
        tokenizer: theirs; None if prompts are token ids and no text is wanted.

    Raises:
        ValueError, TypeError: the models cannot be decoded together; the message says why and what to choose instead.
    """

    target: PreTrainedModel
    draft: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None = None

    def __post_init__(self) -> None:
        check_model("target", self.target)
        check_model("draft", self.draft)
        check_vocabularies(self.target, self.draft, self.tokenizer)
        check_same_device(self.target, self.draft)
        self.target.eval()
        self.draft.eval()

    def __repr__(self) -> str:
        dtypes = "/".join(
            dict.fromkeys(
                str(model.dtype).removeprefix("torch.") for model in (self.target, self.draft)
            )
        )
        models = f"target={_describe(self.target)}, draft={_describe(self.draft)}"
        return f"Pair({models}, vocabulary_size={self.vocabulary_size}, device={self.device}, dtype={dtypes})"

    @property
    def device(self) -> torch.device:
        """Where the inputs of both models go, and what the loop keeps; with a `device_map` the target's other layers lie elsewhere."""
        return input_device(self.target)

    @property
    def vocabulary_size(self) -> int:
        """V: the ids that both models have.

        Where their embeddings are padded to different sizes, the logits beyond it are cut, so no such id is proposed or emitted. What
        is cut is padding, rows that training never wanted; a trained target does not choose them, so its text stays its own.
        """
        return min(vocabulary_sizes(self.target, self.draft))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the pair, a sentence each; empty for most pairs."""
        ours, theirs = vocabulary_sizes(self.target, self.draft)
        if ours == theirs:
            return ()
        return (
            f"The embeddings are padded to different sizes, target {ours} and draft {theirs}: ids from {min(ours, theirs)} are cut.",
        )

    @property
    def eos_token_ids(self) -> list[int]:
        """The ids that end a row: those of the target's generation config, as `generate()` uses them; empty if it names none."""
        config = getattr(self.target, "generation_config", None) or self.target.config
        ids = config.eos_token_id
        return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)

    @property
    def max_positions(self) -> int | None:
        """Positions that both models have; None if neither states a limit."""
        limits = [
            getattr(model.config.get_text_config(), "max_position_embeddings", None)
            for model in (self.target, self.draft)
        ]
        return min((limit for limit in limits if limit is not None), default=None)


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    device_map: DeviceMap | None = None,
) -> Pair:
    """Load a pair. Weights are read from safetensors alone, and no code that comes with a model is run.

    Args:
        target, draft: hub ids or local folders of two causal LMs; both None for the pair that ships with specviz (no network).
        device: "cpu", "cuda", "cuda:1", "mps"; None for CUDA where there is one, else the CPU.
        dtype: "float32", "bfloat16", "float16" or "float64"; None for float32 (embedded pair) or the checkpoints' own.
        device_map: instead of `device`, for a target that needs several GPUs: "auto", "balanced", "balanced_low_0", "sequential", or
            a dict from the target's modules to devices. The draft goes whole to where the target's inputs go. Needs accelerate
            (pip install "specviz[accelerate]").

    Raises:
        ValueError: only one of the two is named, one of them cannot be loaded, the device or dtype is unknown or absent, or the two do
            not fit together.
        FileNotFoundError: there is no such folder, or no model in it.
        ImportError: `device_map` without accelerate.
    """
    if (target is None) != (draft is None):
        missing, given = ("draft", target) if draft is None else ("target", draft)
        raise ValueError(
            f"{missing}=None with {str(given)!r} for the other; give a {missing} too, or neither for the embedded pair"
        )
    if device_map is not None:
        _check_device_map(device_map, device)
    where, kind = (
        find_device(device) if device_map is None else None,
        _dtype(dtype, "float32" if target is None else "auto"),
    )
    if target is None or draft is None:
        folder = Path(str(resources.files("specviz") / "zoo" / "weights"))
        with _no_progress_bars():
            return _load(folder / "target", folder / "draft", kind, where, device_map)
    return _load(target, draft, kind, where, device_map)


def _load(
    target: str | Path,
    draft: str | Path,
    dtype: torch.dtype | str,
    device: torch.device | None,
    device_map: DeviceMap | None,
) -> Pair:
    """`device` is None where `device_map` is not."""
    sources = find("target", target), find("draft", draft)
    tokenizers = [source.load(AutoTokenizer) for source in sources]
    check_tokenizers(*tokenizers)
    places = (
        {}
        if device_map is None
        else {"device_map": device_map if isinstance(device_map, str) else dict(device_map)}
    )
    ours = sources[0].load(AutoModelForCausalLM, dtype=dtype, use_safetensors=True, **places)
    ours = ours if device is None else ours.to(device)
    theirs = (
        sources[1]
        .load(AutoModelForCausalLM, dtype=dtype, use_safetensors=True)
        .to(input_device(ours))
    )
    if len(set(vocabulary_sizes(ours, theirs))) == 2:
        check_vocabularies(
            ours, theirs, tokenizers[1]
        )  # as Pair does with the target's: only padding may differ
    return Pair(ours, theirs, tokenizers[0])


def _describe(model: PreTrainedModel) -> str:
    """Name, class and parameters: "Qwen/Qwen3-8B (Qwen3ForCausalLM, 8.2B)"; without the name for a model made in memory."""
    count = float(sum(parameter.numel() for parameter in model.parameters()))
    unit, size = next(
        ((unit, size) for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)) if count >= size),
        ("", 1.0),
    )
    path = Path(model.name_or_path)
    name = path.name if path.is_absolute() else str(model.name_or_path)
    return (
        f"{type(model).__name__} {count / size:.3g}{unit}"
        if not name
        else f"{name} ({type(model).__name__}, {count / size:.3g}{unit})"
    )


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Without the bars of transformers, which would outlive the fraction of a second that the embedded pair takes."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def find_device(name: str | None, argument: str = "device") -> torch.device:
    """The device of that name; None for CUDA where there is one, else the CPU. Raises ValueError if it is unknown or absent."""
    present = ["cpu"]
    present += (
        [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    present += ["mps"] if torch.backends.mps.is_available() else []
    if name is None:
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"{argument}={name!r} is unknown; this machine has {', '.join(present)}"
        ) from None
    alone = (
        device.type in ("cpu", "mps") and not device.index
    )  # of these a machine has one, also called cpu:0
    if (device.type if alone else f"{device.type}:{device.index or 0}") not in present:
        raise ValueError(f"{argument}={name!r} is not there; this machine has {', '.join(present)}")
    return torch.device(device.type) if alone else device


def _check_device_map(device_map: object, device: str | None) -> None:
    if device is not None:
        raise ValueError(
            f"device={device!r} and device_map={device_map!r} exclude each other; leave one of them out"
        )
    if isinstance(device_map, str) and device_map not in DEVICE_MAPS:
        raise ValueError(
            f"device_map={device_map!r} is unknown; choose one of {', '.join(DEVICE_MAPS)}, or a dict from modules to devices; "
            "for one device pass device="
        )
    if not isinstance(device_map, str | Mapping) or not device_map:
        raise ValueError(
            f"device_map={device_map!r} is no map; pass one of {', '.join(DEVICE_MAPS)}, or a dict from modules to devices"
        )
    for place in device_map.values() if isinstance(device_map, Mapping) else ():
        if place != "disk":
            find_device(f"cuda:{place}" if isinstance(place, int) else place, "device_map")
    if not is_accelerate_available():
        raise ImportError(
            f'device_map={device_map!r} needs accelerate, which is not installed; run: pip install "specviz[accelerate]"'
        )


def _dtype(name: object, default: str) -> torch.dtype | str:
    if name is None:
        return DTYPES.get(default, default)
    if not isinstance(name, str) or name not in DTYPES:
        raise ValueError(f"dtype={name!r} is unknown; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]
