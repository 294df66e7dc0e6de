"""A target, a draft and their tokenizer: the embedded pair, pairs from folders or the hub, and any two models already in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from specviz.engine.compat import check_model, check_same_device, check_tokenizers, check_vocabularies

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@dataclass(frozen=True)
class Pair:
    """Two causal LMs over one vocabulary. Both are put into evaluation mode.

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

    @property
    def device(self) -> torch.device:
        return self.target.device

    @property
    def vocabulary_size(self) -> int:
        return self.target.config.get_text_config().vocab_size

    @property
    def eos_token_ids(self) -> list[int]:
        """The ids that end a row: those of the target's generation config, as `generate()` uses them; empty if it names none."""
        config = getattr(self.target, "generation_config", None) or self.target.config
        ids = config.eos_token_id
        return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)

    @property
    def max_positions(self) -> int | None:
        """Positions that both models have; None if neither states a limit."""
        limits = [getattr(model.config.get_text_config(), "max_position_embeddings", None) for model in (self.target, self.draft)]
        return min((limit for limit in limits if limit is not None), default=None)


def load_pair(
    target: str | Path | None = None, draft: str | Path | None = None, *, device: str | None = None, dtype: str | None = None
) -> Pair:
    """Load a pair.

    Args:
        target, draft: hub ids or local folders of two causal LMs; both None for the pair that ships with specviz (no network).
        device: "cpu", "cuda", "cuda:1", "mps"; None for CUDA where there is one, else the CPU.
        dtype: "float32", "bfloat16", "float16" or "float64"; None for float32 (embedded pair) or the checkpoints' own.

    Raises:
        ValueError: only one of the two is named, one of them cannot be loaded, the device or dtype is unknown or absent, or the two do
            not fit together.
        FileNotFoundError: there is no such folder, or no model in it.
    """
    if (target is None) != (draft is None):
        missing, given = ("draft", target) if draft is None else ("target", draft)
        raise ValueError(f"{missing}=None with {str(given)!r} for the other; name both models, or neither for the embedded pair")
    where, kind = _device(device), _dtype(dtype, "float32" if target is None else "auto")
    if target is None or draft is None:
        folder = Path(str(resources.files("specviz") / "zoo" / "weights"))
        with _no_progress_bars():
            return _load(folder / "target", folder / "draft", where, kind)
    return _load(target, draft, where, kind)


def _load(target: str | Path, draft: str | Path, device: torch.device, dtype: torch.dtype | str) -> Pair:
    names = {"target": target, "draft": draft}
    for role, name in names.items():
        _check_name(role, name)
    tokenizers = [_fetch(AutoTokenizer, role, name) for role, name in names.items()]
    check_tokenizers(*tokenizers)
    models = [_fetch(AutoModelForCausalLM, role, name, dtype=dtype, use_safetensors=True).to(device) for role, name in names.items()]
    return Pair(models[0], models[1], tokenizers[0])


def _check_name(role: str, name: object) -> None:
    """Raise unless `name` may be a hub id or is a folder with a model in it; looks at no network."""
    if not isinstance(name, str | Path) or not str(name):
        raise ValueError(f"{role}={name!r} is no name; pass a hub id or a local folder")
    folder = Path(name)
    looks_local = isinstance(name, Path) or folder.exists() or name.startswith((".", "~", "/"))
    if looks_local and not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{role}={str(name)!r} is no folder with a model in it (a config.json); check the path")


def _fetch(kind: Any, role: str, name: str | Path, **arguments: Any) -> Any:
    try:
        return kind.from_pretrained(name, **arguments)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{role}={str(name)!r} cannot be loaded ({reason}); check the name, and for a hub id the network") from error


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


def _device(name: str | None) -> torch.device:
    present = ["cpu"]
    present += [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    present += ["mps"] if torch.backends.mps.is_available() else []
    if name is None:
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise ValueError(f"device={name!r} is unknown; this machine has {', '.join(present)}") from None
    if (f"cuda:{device.index or 0}" if device.type == "cuda" else device.type) not in present:
        raise ValueError(f"device={name!r} is not there; this machine has {', '.join(present)}")
    return device


def _dtype(name: object, default: str) -> torch.dtype | str:
    if name is None:
        return DTYPES.get(default, default)
    if not isinstance(name, str) or name not in DTYPES:
        raise ValueError(f"dtype={name!r} is unknown; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]
