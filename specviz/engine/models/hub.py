"""Where a model comes from: a local folder, or the Hugging Face hub, which is asked once and quickly before anything is downloaded.

Weights are read from safetensors alone, and no code that a model brings is run.
"""

from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from huggingface_hub import HfApi, ModelInfo, constants, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id

HUB_SECONDS = 4.0  # how long the hub may take to say whether it has a model; its own client would retry for half a minute


@dataclass(frozen=True)
class Source:
    """A model that is there: in a local folder, on the hub, or, while the hub cannot be reached, in its local cache.

    Attributes:
        role, name: "target" or "draft", and the folder or hub id that was given.
        files: the names of its files; None if it comes from the cache.
        remedy: what to do if it cannot be loaded.
    """

    role: str
    name: str
    files: frozenset[str] | None
    remedy: str

    def load(self, kind: Any, **arguments: Any) -> Any:
        """`kind.from_pretrained` of it, without running its code.

        Raises:
            ValueError: it cannot be loaded; says why.
        """
        try:
            return kind.from_pretrained(
                self.name, local_files_only=self.files is None, trust_remote_code=False, **arguments
            )
        except (OSError, ValueError) as error:
            if "use_safetensors" in arguments:
                self.check_safetensors()  # only now: for a hub model without them transformers looks for a converted branch
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"{self.role}={self.name!r} cannot be loaded ({reason}); {self.remedy}"
            ) from error

    def check_safetensors(self) -> None:
        """Raise ValueError if it holds pickled weights and no others."""
        files = self.files or frozenset()
        if any(name.startswith("pytorch_model") for name in files) and not any(
            name.endswith(".safetensors") for name in files
        ):
            raise ValueError(
                f"{self.role}={self.name!r} holds its weights as pickles alone (pytorch_model.bin), which can run code and are not read; "
                "if you trust it, load it once with transformers, write model and tokenizer to a folder with save_pretrained (as "
                "safetensors), and pass that folder"
            )


def find(role: str, name: object) -> Source:
    """The model called `name`.

    Raises:
        ValueError: `name` is no name, the hub has no such model, or it cannot be reached and the model is not in its cache.
        FileNotFoundError: a folder that does not exist, or holds no model.
    """
    if not isinstance(name, str | Path) or not str(name):
        raise ValueError(f"{role}={name!r} is no name; pass a hub id or a local folder")
    folder = Path(name)
    if isinstance(name, str) and not folder.exists() and not name.startswith((".", "~", "/")):
        return _find_on_hub(role, name)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{role}={str(name)!r} is no folder with a model in it (a config.json); check the path"
        )
    source = Source(
        role,
        str(name),
        frozenset(path.name for path in folder.iterdir()),
        "check that all its files are there",
    )
    source.check_safetensors()
    return source


def _find_on_hub(role: str, name: str) -> Source:
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise FileNotFoundError(
            f"{role}={name!r} is no folder, and no hub id either (owner/name); check the path"
        ) from None
    try:
        files = frozenset(sibling.rfilename for sibling in _ask_hub(name).siblings or ())
        return Source(
            role,
            name,
            files,
            f"see {constants.ENDPOINT}/{name} for what it holds and who may have it",
        )
    except RepositoryNotFoundError:
        raise ValueError(
            f"{role}={name!r} is neither a local folder nor a model that {constants.ENDPOINT} shows you; check the spelling, or log in "
            "with `hf auth login` if the model is private"
        ) from None
    except (
        Exception
    ) as error:  # which errors the network has depends on the HTTP library behind the client
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return Source(
                role, name, None, "only a part of it is in the hub's local cache, so go online once"
            )
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{role}={name!r} is no local folder, and as a hub id it cannot be looked up ({reason}), nor is it in the hub's local "
            "cache; check path or network, or pass a folder that the model was downloaded to"
        ) from error


def _ask_hub(name: str) -> ModelInfo:
    """What the hub says of a model, within `HUB_SECONDS`; raises what its client raises, or TimeoutError.

    The client's own timeout counts anew for each address of the host and does not cover looking the host up, hence the thread.
    """
    answers: SimpleQueue[ModelInfo | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(HfApi().model_info(name, timeout=HUB_SECONDS))
        except Exception as error:  # handed to the caller
            answers.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=HUB_SECONDS)
    except Empty:
        raise TimeoutError(
            f"{constants.ENDPOINT} did not answer within {HUB_SECONDS:.0f} s"
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer
