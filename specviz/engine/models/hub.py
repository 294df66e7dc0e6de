"""Find a model: in a local folder, on the Hugging Face hub, or in the hub's local cache.

Contract: the hub is asked once, with a short timeout, before anything is downloaded. Weights are
read from safetensors alone, and no code that comes with a model is run.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id

from specviz.util.files import is_file
from specviz.util.validate import quoted_path, short

# Timeout of the request that asks the hub for a model. Loading without that request would retry for
# half a minute when there is no network.
HUB_SECONDS = 4.0
MAX_HUB_ID = 96  # characters, as the hub has it


@dataclass(frozen=True)
class Source:
    """A model that was found.

    Attributes:
        role: "target" or "draft".
        name: the folder or hub id that was given.
        files: the names of its files; None if it comes from the hub's local cache.
        remedy: what to do if it cannot be loaded.
    """

    role: str
    name: str
    files: frozenset[str] | None
    remedy: str

    def load(self, kind: Any, **arguments: Any) -> Any:
        """Return `kind.from_pretrained` of the model, without running code that comes with it.

        Raises:
            ValueError: the model cannot be loaded; says why.
        """
        local = self.files is None
        if "use_safetensors" in arguments:
            # With peft installed, transformers looks for an adapter, and asks the hub unless this
            # says that it should not.
            arguments["adapter_kwargs"] = {"local_files_only": local}
        try:
            return kind.from_pretrained(
                self.name, local_files_only=local, trust_remote_code=False, **arguments
            )
        except (OSError, ValueError) as error:
            if "use_safetensors" in arguments:
                # Not before: if a hub model has no safetensors, transformers finds converted ones.
                self.check_safetensors()
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"{self.role}={self.name!r} cannot be loaded ({reason}); {self.remedy}"
            ) from error

    def check_safetensors(self) -> None:
        """Raise ValueError if the model has pickled weights and no others."""
        files = self.files or frozenset()
        has_pickles = any(name.startswith("pytorch_model") for name in files)
        has_safetensors = any(name.endswith(".safetensors") for name in files)
        if has_pickles and not has_safetensors:
            raise ValueError(
                f"{self.role}={self.name!r} has its weights as pickles alone (pytorch_model.bin), "
                "which can run code and are not read; if you trust the model, load it once with "
                "transformers, write model and tokenizer to a folder with save_pretrained (as "
                "safetensors), and pass that folder"
            )


def check_name(role: str, name: object) -> bool:
    """Return whether `name` is a hub id, and not a local folder with a model. Asks no hub.

    Raises:
        ValueError: `name` cannot be a name.
        FileNotFoundError: it is neither, or the folder holds no model.
    """
    if not isinstance(name, str | Path) or not str(name):
        raise ValueError(
            f"{role} must be a hub id or a folder, got {short(name)}; pass a str or a Path"
        )
    folder = Path(name)
    has_config = is_file(folder / "config.json")
    local = not isinstance(name, str) or name.startswith((".", "~", "/"))
    # What is longer than a hub id is for the hub's own check to refuse, and may be no file's name.
    if not local and not has_config and (len(str(name)) > MAX_HUB_ID or not folder.exists()):
        try:
            validate_repo_id(str(name))
        except HFValidationError:
            raise FileNotFoundError(
                f"{role}={quoted_path(name)} is neither a folder nor a hub id (owner/name); "
                "check the path"
            ) from None
        return True
    if not has_config:
        raise FileNotFoundError(
            f"{role}={quoted_path(name)} is not a folder that holds a model (a config.json); "
            "check the path"
        )
    return False


def find(role: str, name: object) -> Source:
    """Find the model called `name`, a hub id or a local folder.

    Raises:
        ValueError: `name` cannot be a name, the hub has no such model, or the hub cannot be reached
            and the model is not in its local cache.
        FileNotFoundError: the folder does not exist, or holds no model.
    """
    is_on_hub = check_name(role, name)
    name = str(name)
    if not is_on_hub:
        files = frozenset(path.name for path in Path(name).iterdir())
        source = Source(role, name, files, "check that all its files are there")
        source.check_safetensors()
        return source
    try:
        siblings = HfApi().model_info(name, timeout=HUB_SECONDS).siblings or ()
    except RepositoryNotFoundError:
        raise ValueError(
            f"{role}={name!r} is neither a local folder nor a model that {constants.ENDPOINT} "
            "shows you; check the spelling, or log in with `hf auth login` if the model is private"
        ) from None
    except Exception as error:  # its type depends on the HTTP library that the client uses
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            remedy = "only a part of it is in the hub's local cache, so go online once"
            return Source(role, name, None, remedy)
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{role}={name!r} is not a local folder, cannot be looked up on the hub ({reason}) and "
            "is not in the hub's local cache; check path or network, or pass a folder that holds "
            "the model"
        ) from error
    files = frozenset(sibling.rfilename for sibling in siblings)
    page = f"{constants.ENDPOINT}/{name}"
    return Source(role, name, files, f"see {page} for its files and who may download them")
