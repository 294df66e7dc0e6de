"""Texts of the tokens that occur in a log.

Contract: `Texts` asks a tokenizer once for each token. Not known here: events and files.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.record.schema import Array
from specviz.util.validate import is_int, require_mapping, short


class Texts:
    """Texts by token.

    Attributes:
        known: {"id": text}, as the header of a record has them.
    """

    def __init__(self, tokenizer: Any, texts: Mapping[Any, str] | None) -> None:
        if tokenizer is not None and not callable(getattr(tokenizer, "decode", None)):
            raise ValueError(
                f"tokenizer must have a method decode, got {short(tokenizer)}; "
                "pass a tokenizer of transformers, or token_texts"
            )
        self.known: dict[str, str] = {}
        self._tokenizer = tokenizer
        if texts is not None:
            self.add(texts, "token_texts")

    def add(self, texts: Any, name: str = "texts") -> dict[str, str]:
        """Add texts by token, and return them. Raises ValueError where they are none."""
        require_mapping(name, texts, "pass {id: text}")
        found = {}
        for token, text in texts.items():
            fits = is_int(token) or (isinstance(token, str) and token.isdecimal())
            if not fits or not 0 <= int(token) < 2**31 or not isinstance(text, str):
                raise ValueError(
                    f"{name} must map token ids to str, got {short({token: text})}; "
                    "pass {id: text}"
                )
            found[str(int(token))] = text
        self.known |= found
        return found

    def new(self, *tokens: Array) -> dict[str, str]:
        """Return the texts of those tokens that have none yet, as the tokenizer gives them."""
        found: dict[str, str] = {}
        if self._tokenizer is None:
            return found
        for array in tokens:
            for token in np.unique(array).tolist():
                key = str(token)
                if token >= 0 and key not in self.known:
                    self.known[key] = found[key] = self._decoded(token)
        return found

    def _decoded(self, token: int) -> str:
        try:
            return str(self._tokenizer.decode([token]))
        except Exception as error:  # of a foreign object
            raise ValueError(
                f"tokenizer must decode([{token}]), got {short(self._tokenizer)}, which raises "
                f"{type(error).__name__}; pass a tokenizer of transformers, or token_texts"
            ) from error
