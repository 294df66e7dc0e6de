"""The layouts in which other tools save outputs, as one table: how each is known, and read. The
fields are those that the tools' own sources write.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from specviz.checks.audit.output import BUDGETS, Output, failed, from_record, plain_list
from specviz.util.validate import is_count, is_finite, is_list, short

_TOKEN_ID = re.compile(r"token_id:(\d+)")  # a token of vLLM with return_tokens_as_token_ids
_REASONING = ("reasoning_content", "reasoning")  # where servers put a thinking model's thoughts


class Form(NamedTuple):
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
    """Return the layout of an object, the JSONL form if it is no other."""
    return next(form for form in FORMS if all(key in value for key in form.keys))


def read_choice(answer: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return one choice of an answer of the OpenAI protocol as a record of the JSONL form.

    A thinking model's text is its reasoning and its answer, joined. What a server left out, and
    what is not of the protocol, is left out. None if there is no text, or more than one.
    """
    message = choice.get("message")
    if isinstance(message, Mapping):
        text = message.get("content")
        thoughts = [message[key] for key in _REASONING if message.get(key)]
    else:
        message, text, thoughts = {}, choice.get("text"), []
    if thoughts and text is None:
        text = ""
    if not isinstance(text, str) or not all(isinstance(each, str) for each in thoughts):
        return None
    if message.get("tool_calls"):  # their tokens are not in the text
        return None
    reason = choice.get("finish_reason")
    record: dict[str, Any] = {
        "text": "".join([*thoughts[:1], text]),
        "finish_reason": reason if isinstance(reason, str) else None,
    }
    if thoughts:
        record["has_reasoning"] = True
    prompt_ids = choice.get("prompt_token_ids") or answer.get("prompt_token_ids")
    for name, ids in (("token_ids", choice.get("token_ids")), ("prompt_token_ids", prompt_ids)):
        if is_list(ids) and ids and all(map(is_count, ids)):
            record[name] = list(ids)
    scores = _scores(choice.get("logprobs"))
    count = len(scores.get("logprobs", ()))
    if "token_ids" in record and count != len(record["token_ids"]):
        return record
    return scores | record


def _scores(logprobs: object) -> dict[str, Any]:
    """Return tokens, logprobs and top_logprobs, from either protocol; {} if there are none."""
    if not isinstance(logprobs, Mapping):
        return {}
    if logprobs.get("content"):
        entries = logprobs["content"]
        tokens = [entry.get("token") for entry in entries]
        values = [entry.get("logprob") for entry in entries]
        top = [
            [(each["token"], each["logprob"]) for each in entry.get("top_logprobs") or ()]
            for entry in entries
        ]
    else:
        tokens = logprobs.get("tokens") or []
        values = logprobs.get("token_logprobs") or []
        top = [
            list((each or {}).items())
            for each in logprobs.get("top_logprobs") or [None] * len(tokens)
        ]
    if not tokens or not len(tokens) == len(values) == len(top):
        return {}
    if not all(isinstance(token, str) for token in tokens):
        return {}
    ids = [_id(token) for token in tokens]
    has_ids = all(isinstance(token, int) for token in ids)
    return {
        "token_ids" if has_ids else "tokens": ids if has_ids else tokens,
        "logprobs": [value if is_finite(value) else None for value in values],
        "top_logprobs": [
            [[_id(token), value] for token, value in place if is_finite(value)] for place in top
        ],
    }


def _id(token: str) -> int | str:
    found = _TOKEN_ID.fullmatch(token)
    return int(found[1]) if found else token


def _openai(where: str, value: Mapping[str, Any], key: str = "") -> Iterator[Output]:
    """Several choices of a completion answer several prompts, in order."""
    asked = {name: value[name] for name in ("prompt", "messages", *BUDGETS) if name in value}
    choices = sorted(_entries(where, value, "choices"), key=lambda each: each.get("index") or 0)
    for i, choice in enumerate(choices):
        record = read_choice(value, choice)
        if record is None:
            raise ValueError(
                f"{where} has a choice that is not all text, {short(choice)}; save whole answers, "
                "without tool calls and not as parts of a stream"
            )
        is_chat = "message" in choice
        yield from_record(where, asked | record, is_chat=is_chat, key=f"{key} {i}" if key else "")


def _batch_line(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    body = (value["response"] or {}).get("body") or {"error": "no answer"}
    error = value.get("error") or body.get("error")
    if error:
        raise failed(where, error)
    yield from _openai(where, body, f"custom_id {value['custom_id']}")


def _spec_bench(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    """A later turn answers a prompt that holds the earlier answers, so only the first is read."""
    for i, choice in enumerate(_entries(where, value, "choices")):
        text = _entries(f"{where}: choices[{i}]", choice, "turns", str)[0]
        if text == "ERROR":  # what Spec-Bench writes after a RuntimeError
            raise failed(where, text)
        key = f"question_id {value['question_id']} {i}"
        yield from_record(where, {"text": text}, is_chat=True, key=key)


def _vllm_bench(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    if "generated_texts" not in value:
        raise ValueError(f"{where} has counts but no texts; benchmark with --save-detailed")
    errors = dict(enumerate(value.get("errors") or ()))
    is_chat = "chat" in str(value.get("backend") or value.get("endpoint_type"))
    for i, text in enumerate(_entries(where, value, "generated_texts", str)):
        place = f"{where}: generated_texts[{i}]"
        if errors.get(i):
            raise failed(place, errors[i])
        yield from_record(place, {"text": text}, is_chat=is_chat)


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
        asked = {name: settings[name] for name in BUDGETS if name in settings}
        if is_list(prompt):  # a chat, as the JSON text that a server was sent
            asked["messages"] = json.loads(prompt[0])
        else:
            asked["prompt"] = prompt
        for j, text in enumerate(texts):
            # A file has the same answer once for each filter of its task.
            key = f"doc_id {value['doc_id']} {i} {j} {prompt}"
            yield from_record(where, {**asked, "text": text}, key=key)


def _llama_cpp(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    settings = value.get("generation_settings") or {}
    _check_greedy(where, settings)
    if value["stop"] is False:
        raise ValueError(f"{where} is a part of a stream; ask with stream=false")
    # Older servers have a flag for each end.
    ends = ("eos", "word", "limit")
    flag = next((end for end in ends if value.get(f"stopped_{end}")), None)
    places = value.get("completion_probabilities") or ()
    has_scores = bool(places) and all("logprob" in place for place in places)
    ids = value.get("tokens") or ([place["id"] for place in places] if has_scores else None)
    record: dict[str, Any] = {
        "prompt": value.get("prompt"),
        "text": value["content"],
        "token_ids": ids,  # none without return_tokens
        "finish_reason": value.get("stop_type") or flag,
        # A full context ends a text before its budget does.
        "max_tokens": None if value.get("truncated") else settings.get("n_predict"),
    }
    if has_scores and ids and len(ids) == len(places):
        record["logprobs"] = [place["logprob"] for place in places]
        tops = [place["top_logprobs"] for place in places]
        record["top_logprobs"] = [[(each["id"], each["logprob"]) for each in top] for top in tops]
    yield from_record(where, record)


def _vllm(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    if value.get("finished") is False:
        raise failed(where, "finished: false")
    for output in _entries(where, value, "outputs"):
        record = {name: output.get(name) for name in ("token_ids", "text", "finish_reason")}
        record |= {name: value.get(name) for name in ("prompt", "prompt_token_ids")}
        logprobs, ids = output.get("logprobs"), plain_list(output.get("token_ids"))
        if isinstance(logprobs, Mapping):  # flat lists
            entries = list(zip(logprobs["token_ids"], logprobs["logprobs"], strict=True))
            spans = zip(logprobs["start_indices"], logprobs["end_indices"], strict=True)
            places = [entries[start:end] for start, end in spans]
        else:
            places = [
                [(int(token), each["logprob"]) for token, each in (place or {}).items()]
                for place in logprobs or ()
            ]
        if logprobs is not None and is_list(ids):
            pairs = zip(ids, places, strict=False)
            record["logprobs"] = [dict(place).get(token) for token, place in pairs]
            record["top_logprobs"] = places
        yield from_record(where, record)


def _sglang(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    meta = value["meta_info"]
    reason = meta.get("finish_reason")
    chosen = _pairs(meta.get("output_token_logprobs"))
    prompt = _pairs(meta.get("input_token_logprobs"))
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
        record["top_logprobs"] = [_pairs(place) for place in top] if top else None
    yield from_record(where, record)


def _pairs(triples: Any) -> list[tuple[Any, Any]]:
    """Return (token id, log-probability) of triples (log-probability, id, text)."""
    return [(token, logprob) for logprob, token, *_ in triples or ()]


def _own(where: str, value: Mapping[str, Any]) -> Iterator[Output]:
    if value.get("error"):
        raise failed(where, value["error"])
    if not {"token_ids", "tokens", "text"} & set(value):
        shown = ", ".join(repr(str(key)[:20]) for key in list(value)[:5]) or "no keys"
        names = ", ".join(form.name for form in FORMS if form.name)
        raise ValueError(
            f"{where} has no output under 'token_ids', 'tokens' or 'text', but {shown}; write one "
            f"of these, or what these tools save: {names} (docs/debug.md)"
        )
    yield from_record(where, value)


def _entries(where: str, value: Mapping[str, Any], key: str, kind: type = Mapping) -> list[Any]:
    """Return the entries of a list. Raise ValueError for other kinds, or none."""
    entries = value.get(key)
    if not is_list(entries) or not entries or not all(isinstance(each, kind) for each in entries):
        kinds = "texts" if kind is str else "objects"
        raise ValueError(
            f"{where}: {key} must be a list of {kinds}, one or more, got {short(entries)}; pass "
            "the file as the tool wrote it"
        )
    return list(entries)


def _check_greedy(where: str, settings: Mapping[str, Any]) -> None:
    """Raise ValueError if a text was sampled, as far as its settings tell."""
    temperature, samples = settings.get("temperature"), settings.get("do_sample")
    hot = samples if temperature is None else is_finite(temperature) and temperature > 0
    if hot and samples is not False and settings.get("top_k") != 1:
        raise ValueError(
            f"{where} was sampled with temperature={short(temperature)}, and an audit judges "
            "greedy outputs; ask with temperature=0"
        )


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
    Form("", (), _own),
)
