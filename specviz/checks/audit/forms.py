"""The layouts in which other tools save outputs, as one table: how each is known, and read.

Contract: one JSON object goes in, an `Output` for each text comes out. The fields are those that
the tools' own sources write. Not known here: files, models.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specviz.checks.audit.answers import read_choice
from specviz.checks.audit.output import BUDGETS, Output, failed, from_record, plain_list
from specviz.util.validate import is_finite, is_list, short


@dataclass(frozen=True)
class Form:
    """A layout of an object that holds outputs.

    Attributes:
        name: as errors and docs/debug.md call it.
        keys: an object with these keys has this layout.
        read: returns the outputs of such an object; `where` names it in errors.
        part: which part of such a file is read; "" for all.
    """

    name: str
    keys: tuple[str, ...]
    read: Callable[[str, Mapping[str, Any]], Iterable[Output]]
    part: str = ""


def form_of(value: Mapping[str, Any]) -> Form:
    """Return the layout of an object, that of `output` if it is no other."""
    return next(form for form in FORMS if all(key in value for key in form.keys))


def _own(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    if not {"token_ids", "tokens", "text"} & set(value):
        shown = ", ".join(repr(str(key)[:20]) for key in list(value)[:5]) or "no keys"
        names = ", ".join(form.name for form in FORMS if form.name)
        raise ValueError(
            f"{where} has no output under 'token_ids', 'tokens' or 'text', but {shown}; write one "
            f"of these, or what these tools save: {names} (docs/debug.md)"
        )
    yield from_record(where, value)


def _spec_bench(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    """A later turn answers a prompt that holds the earlier answers, so only the first is read."""
    for i, choice in _entries(where, value, "choices"):
        (_, text), *_ = _entries(f"{where}: choices[{i}]", choice, "turns", str)
        if text == "ERROR":  # what Spec-Bench writes after a RuntimeError
            raise failed(where, text)
        output = replace(from_record(where, {"text": text}), is_chat=True)
        yield _keyed(output, "question_id", value["question_id"], i)


def _vllm_bench(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    if "generated_texts" not in value:
        raise ValueError(f"{where} has counts but no texts; benchmark with --save-detailed")
    texts = list(_entries(where, value, "generated_texts", str))
    errors = dict(enumerate(value.get("errors") or ()))
    for i, _ in texts:
        if errors.get(i):
            raise failed(f"{where}: generated_texts[{i}]", errors[i])
    is_chat = "chat" in str(value.get("backend") or value.get("endpoint_type"))
    for i, text in texts:
        output = from_record(f"{where}: generated_texts[{i}]", {"text": text})
        yield replace(output, is_chat=is_chat)


def _lm_eval(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    arguments = value.get("arguments")
    requests = list(arguments.values() if isinstance(arguments, Mapping) else arguments or ())
    for i, texts in enumerate(value["resps"]):
        request = requests[i]
        prompt, settings, *_ = request.values() if isinstance(request, Mapping) else request
        if not is_list(texts) or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{where}: resps[{i}] must be a list of texts, got {short(texts)}; audit tasks "
                "whose output_type is generate_until"
            )
        _check_greedy(where, settings)
        asked = {key: settings[key] for key in BUDGETS if key in settings}
        if is_list(prompt):  # a chat, as the JSON text that a server was sent
            asked["messages"] = json.loads(prompt[0])
        else:
            asked["prompt"] = prompt
        for j, text in enumerate(texts):
            # A file has the same answer once for each filter of its task.
            key = (value["doc_id"], i, j, prompt)
            yield _keyed(from_record(where, {**asked, "text": text}), "doc_id", *key)


def _llama_cpp(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    settings = value.get("generation_settings") or {}
    _check_greedy(where, settings)
    if value["stop"] is False:
        raise ValueError(f"{where} is a part of a stream; ask with stream=false")
    reason = value.get("stop_type")
    if reason is None:  # older servers
        ends = {"stopped_eos": "eos", "stopped_word": "word", "stopped_limit": "limit"}
        reason = next((name for key, name in ends.items() if value.get(key)), None)
    record: dict[str, Any] = {
        "prompt": value.get("prompt"),
        "text": value["content"],
        "token_ids": value.get("tokens") or None,  # empty without return_tokens
        "finish_reason": reason,
        # A full context ends a text before its budget does.
        "max_tokens": None if value.get("truncated") else settings.get("n_predict"),
    }
    places = value.get("completion_probabilities") or ()
    if places and all("logprob" in place for place in places):
        record["token_ids"] = record["token_ids"] or [place["id"] for place in places]
        if len(record["token_ids"]) == len(places):
            record["logprobs"] = [place["logprob"] for place in places]
            record["top_logprobs"] = [
                [(each["id"], each["logprob"]) for each in place["top_logprobs"]]
                for place in places
            ]
    yield from_record(where, record)


def _batch_line(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    body = (value["response"] or {}).get("body") or {"error": "no answer"}
    error = value.get("error") or body.get("error")
    if error:
        raise failed(where, error)
    for i, output in enumerate(_openai(where, body)):
        yield _keyed(output, "custom_id", value["custom_id"], i)


def _openai(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    """Several choices of a completion answer several prompts, in order."""
    choices = [choice for _, choice in _entries(where, value, "choices")]
    asked = {key: value[key] for key in ("prompt", "messages", *BUDGETS) if key in value}
    for choice in sorted(choices, key=lambda choice: choice.get("index") or 0):
        record = read_choice(value, choice)
        if record is None:
            raise ValueError(
                f"{where} has a choice that is not all text, {short(choice)}; save whole answers, "
                "without tool calls and not as parts of a stream"
            )
        yield replace(from_record(where, asked | record), is_chat="message" in choice)


def _vllm(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    if value.get("finished") is False:
        raise failed(where, "finished: false")
    for _, output in _entries(where, value, "outputs"):
        names = ("token_ids", "text", "finish_reason")
        record = {name: output.get(name) for name in names}
        record |= {name: value.get(name) for name in ("prompt", "prompt_token_ids")}
        places = _vllm_places(output.get("logprobs"))
        token_ids = plain_list(output.get("token_ids"))
        if places is not None and is_list(token_ids):
            pairs = zip(token_ids, places, strict=False)
            record["logprobs"] = [dict(place).get(token) for token, place in pairs]
            record["top_logprobs"] = places
        yield from_record(where, record)


def _vllm_places(logprobs: Any) -> list[list[tuple[int, Any]]] | None:
    """Return the candidates of each place, from dicts by token id or from flat lists."""
    if logprobs is None:
        return None
    if isinstance(logprobs, Mapping):
        entries = list(zip(logprobs["token_ids"], logprobs["logprobs"], strict=True))
        spans = zip(logprobs["start_indices"], logprobs["end_indices"], strict=True)
        return [entries[start:end] for start, end in spans]
    places = []
    for place in logprobs:
        places.append([(int(token), each["logprob"]) for token, each in (place or {}).items()])
    return places


def _sglang(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    meta = value["meta_info"]
    reason = meta.get("finish_reason")
    chosen = _sglang_pairs(meta.get("output_token_logprobs"))
    prompt = _sglang_pairs(meta.get("input_token_logprobs"))
    # All of the prompt comes back with logprob_start_len=0 only.
    is_whole = prompt and len(prompt) == meta.get("prompt_tokens")
    record = {
        "prompt_token_ids": [token for token, _ in prompt] if is_whole else None,
        **{key: value[key] for key in ("prompt", "prompt_token_ids", "text") if key in value},
        "token_ids": value.get("output_ids") or [token for token, _ in chosen] or None,
        "finish_reason": reason.get("type") if isinstance(reason, Mapping) else reason,
    }
    if chosen:
        record["logprobs"] = [logprob for _, logprob in chosen]
        top = meta.get("output_top_logprobs")
        record["top_logprobs"] = [_sglang_pairs(place) for place in top] if top else None
    yield from_record(where, record)


def _sglang_pairs(triples: Any) -> list[tuple[Any, Any]]:
    """Return (token id, log-probability) of triples (log-probability, id, text)."""
    return [(token, logprob) for logprob, token, *_ in triples or ()]


def _error(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    if value["error"]:
        raise failed(where, value["error"])
    yield from _own(where, value)


def _entries(
    where: str, value: Mapping[str, Any], key: str, kind: type = Mapping
) -> Iterator[tuple[int, Any]]:
    """Yield the numbered entries of a list. Raise ValueError for other kinds, or none."""
    entries = value.get(key)
    if not is_list(entries) or not entries or not all(isinstance(each, kind) for each in entries):
        kinds = "texts" if kind is str else "objects"
        raise ValueError(
            f"{where}: {key} must be a list of {kinds}, one or more, got {short(entries)}; pass "
            "the file as the tool wrote it"
        )
    yield from enumerate(entries)


def _check_greedy(where: str, settings: Mapping[str, Any]) -> None:
    """Raise ValueError if a text was sampled, as far as its settings tell."""
    temperature, samples = settings.get("temperature"), settings.get("do_sample")
    hot = samples if temperature is None else is_finite(temperature) and temperature > 0
    if hot and samples is not False and settings.get("top_k") != 1:
        raise ValueError(
            f"{where} was sampled with temperature={short(temperature)}, and an audit judges "
            "greedy outputs; ask with temperature=0"
        )


def _keyed(output: Output, *key: object) -> Output:
    return replace(output, key=" ".join(map(str, key)))


FORMS = (
    Form("Spec-Bench's model_answer", ("question_id", "choices"), _spec_bench, "first turns"),
    Form("lm-eval's samples", ("doc_id", "resps"), _lm_eval),
    Form("llama.cpp's /completion", ("content", "stop"), _llama_cpp),
    Form("OpenAI's batch output", ("custom_id", "response"), _batch_line),
    Form("OpenAI's answers", ("choices",), _openai),
    Form("vllm bench serve", ("generated_texts",), _vllm_bench),
    Form("", ("request_throughput",), _vllm_bench),
    Form("vLLM's RequestOutput", ("outputs", "prompt"), _vllm),
    Form("SGLang's Engine.generate", ("meta_info",), _sglang),
    Form("", ("error",), _error),
    Form("", (), _own),
)
