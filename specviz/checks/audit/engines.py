"""vLLM's and SGLang's outputs, as objects, dicts or what is printed of them, in specviz's form.

Contract: plain dicts go in, records of the form of `output` come out. The fields are those of
vLLM's `RequestOutput` and of what SGLang's `Engine.generate` returns, as their sources have them.
"""

from collections.abc import Mapping
from typing import Any

from specviz.checks.audit.output import plain_list
from specviz.util.validate import is_list, short


def is_vllm(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields of vLLM's `RequestOutput`."""
    return "outputs" in record and ("prompt_token_ids" in record or "prompt" in record)


def is_sglang(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields of what SGLang's `Engine.generate` returns."""
    return "meta_info" in record


def as_mapping(value: object) -> object:
    """Return a foreign object, such as vLLM's `RequestOutput`, as a dict of its attributes."""
    if isinstance(value, Mapping) or not hasattr(value, "__dict__") or callable(value):
        return value
    return vars(value)


def from_vllm(where: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a vLLM output. Raises ValueError if it holds more or less than one."""
    outputs = record["outputs"]
    if not is_list(outputs) or len(outputs) != 1:
        count = len(outputs) if is_list(outputs) else short(outputs)
        raise ValueError(f"{where} must hold one output, got {count}; generate with n=1")
    output = as_mapping(outputs[0])
    if not isinstance(output, Mapping):
        raise ValueError(
            f"{where}: outputs[0] must be an object, got {short(output)}; write each output with "
            "json.dumps(output, default=vars)"
        )
    found = {
        "prompt": record.get("prompt"),
        "prompt_token_ids": record.get("prompt_token_ids"),
        "token_ids": output.get("token_ids"),
        "text": output.get("text"),
        "finish_reason": output.get("finish_reason"),
    }
    token_ids = plain_list(output.get("token_ids"))
    places = _vllm_places(where, output.get("logprobs"))
    if places is not None and is_list(token_ids):
        chosen = []
        for token, place in zip(token_ids, places, strict=False):
            chosen.append(dict(place).get(token))
        found |= {"logprobs": chosen, "top_logprobs": places}
    return found


def _vllm_places(where: str, logprobs: Any) -> list[list[tuple[int, Any]]] | None:
    """Return the candidates of each place, from dicts by token id or from flat lists."""
    logprobs = as_mapping(logprobs)
    if logprobs is None:
        return None
    try:
        if isinstance(logprobs, Mapping):
            return _flat_places(logprobs)
        places = []
        for place in logprobs:
            entries = []
            for token, entry in (place or {}).items():
                entry = as_mapping(entry)
                value = entry["logprob"] if isinstance(entry, Mapping) else entry
                entries.append((int(token), value))
            places.append(entries)
        return places
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        raise ValueError(
            f"{where}: logprobs must be vLLM's, a dict of token ids a place, got "
            f"{short(logprobs)}; write each output with json.dumps(output, default=vars)"
        ) from None


def _flat_places(flat: Mapping[str, Any]) -> list[list[tuple[int, Any]]]:
    spans = zip(flat["start_indices"], flat["end_indices"], strict=True)
    entries = list(zip(flat["token_ids"], flat["logprobs"], strict=True))
    return [entries[start:end] for start, end in spans]


def from_sglang(where: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of an SGLang output, which names its prompt only if that was asked for."""
    meta = record["meta_info"]
    if not isinstance(meta, Mapping):
        raise ValueError(
            f"{where}: meta_info must be an object, got {short(meta)}; write what Engine.generate "
            "returned"
        )
    reason = meta.get("finish_reason")
    found = {
        "prompt": record.get("prompt"),
        "prompt_token_ids": record.get("prompt_token_ids", _sglang_prompt(where, meta)),
        "token_ids": record.get("output_ids"),
        "text": record.get("text"),
        "finish_reason": reason.get("type") if isinstance(reason, Mapping) else reason,
    }
    chosen = _entries(where, meta, "output_token_logprobs")
    if chosen is not None:
        if found["token_ids"] is None:
            found["token_ids"] = [token for token, _ in chosen]
        found["logprobs"] = [value for _, value in chosen]
    top = meta.get("output_top_logprobs")
    if is_list(top) and top:
        found["top_logprobs"] = [_pairs(where, "output_top_logprobs", place) for place in top]
    return found


def _sglang_prompt(where: str, meta: Mapping[str, Any]) -> list[Any] | None:
    """Return the prompt's ids if all of them came back, with logprob_start_len=0."""
    entries = _entries(where, meta, "input_token_logprobs")
    if not entries or len(entries) != meta.get("prompt_tokens"):
        return None
    return [token for token, _ in entries]


def _entries(where: str, meta: Mapping[str, Any], key: str) -> list[tuple[Any, Any]] | None:
    value = meta.get(key)
    return _pairs(where, key, value) if value else None


def _pairs(where: str, key: str, entries: object) -> list[tuple[Any, Any]]:
    """Return (token id, log-probability) of SGLang's triples (log-probability, id, text)."""
    if entries is None:
        return []
    pairs = []
    for entry in entries if is_list(entries) else [entries]:
        if not is_list(entry) or len(entry) < 2:
            raise ValueError(
                f"{where}: {key} must hold triples [log-probability, token id, text], got "
                f"{short(entry)}; write what Engine.generate returned"
            )
        pairs.append((entry[1], entry[0]))
    return pairs
