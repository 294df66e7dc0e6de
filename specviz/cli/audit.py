"""`specviz audit`: judge the outputs of a decoder against a reference, for a person or a CI."""

from pathlib import Path
from typing import Any, Literal

from specviz.cli.exit import NotPassedError, keeping
from specviz.cli.shared import DtypeName, print_written
from specviz.prompts import load_prompts
from specviz.util.files import check_writable, is_file
from specviz.util.validate import quoted_path, shown_path


def audit(
    *,
    reference: Path | None = None,
    candidate: Path | None = None,
    target: str | None = None,
    control: Path | None = None,
    prompts: Path | None = None,
    device: str | None = None,
    dtype: DtypeName | None = None,
    batch_size: int = 8,
    num_draft_tokens: int = 5,
    generation_config: Literal["target"] | None = None,
    report: Path | None = None,
    reference_url: str | None = None,
    candidate_url: str | None = None,
    model: tuple[str, ...] = (),
    concurrency: tuple[int, ...] = (4,),
    protocol: Literal["completions", "chat"] = "completions",
    max_new_tokens: int = 128,
    logprobs: int | None = None,
    timeout: float = 120.0,
    outputs: Path = Path("runs/audit"),
) -> None:
    """Judge the outputs of any decoder against a reference; exit with 1 if they do not pass.

    Outputs are files, or come from servers that speak the OpenAI protocol.

    Args:
        reference: outputs to trust: JSONL, or as other tools save them; docs/debug.md has the
            forms.
        candidate: outputs to judge, of the same prompts in the same order.
        target: hub id or folder of the target, which scores the texts where they part.
        control: outputs of the reference's decoder in another batch, to compare with.
        prompts: JSONL with the prompts under 'prompt', for outputs that name none.
        device: cpu, cuda, cuda:1 ... (CUDA where there is one).
        dtype: of the runs (that of the target's files).
        batch_size: rows of the candidate's batch, for the noise.
        num_draft_tokens: draft tokens a row and round, for the noise.
        generation_config: target, if the texts were chosen from scores as the target's
            generation_config processes them.
        report: the HTML page (beside the candidate, to .html).
        reference_url: instead of --reference: a server, for instance http://localhost:8000/v1.
        candidate_url: instead of --candidate: a server.
        model: one, or the reference's and the candidate's (the only one that the server lists).
        concurrency: requests under way at once: one, or the reference's and the candidate's.
        protocol: of the servers.
        max_new_tokens: asked of the servers.
        logprobs: ask for the log-probabilities of N tokens a place, if the server gives them.
        timeout: seconds that one answer may take.
        outputs: folder of the fetched outputs, which must not be there yet.
    """
    files = {"reference": reference, "candidate": candidate, "control": control}
    urls = {"reference": reference_url, "candidate": candidate_url}
    _check(files | {"prompts": prompts}, urls, {"concurrency": concurrency, "model": model})
    page = report or (candidate or outputs / "candidate.jsonl").with_suffix(".html")
    check_writable(page)
    for name, path in {**files, "prompts": prompts}.items():
        if path is not None and is_file(page) and path.samefile(page):
            raise ValueError(
                f"--{name} {quoted_path(path)} would be replaced by the report; name another file "
                "with --report"
            )
    texts = None if prompts is None else load_prompts("jsonl", prompts, field="prompt")

    settings = {"protocol": protocol, "max_new_tokens": max_new_tokens, "logprobs": logprobs}
    for place, (role, url) in enumerate(urls.items()):
        if url is not None and texts is not None:
            own = {"model": _own(model, place), "concurrency": _own(concurrency, place)}
            path = outputs / f"{role}.jsonl"
            files[role] = _fetch(url, texts, path, timeout_s=timeout, **settings, **own)

    import specviz as sv
    from specviz.views.audit_page import save_audit

    found = sv.audit(
        files["reference"],
        files["candidate"],
        target,
        control,
        prompts=texts,
        device=device,
        dtype=dtype,
        batch_size=batch_size,
        num_draft_tokens=num_draft_tokens,
        generation_config=generation_config,
    )
    print(found)
    print()
    print_written([save_audit(found, page)])
    if not found.passed:
        raise NotPassedError(found.verdict)


def _own(given: tuple[Any, ...], place: int) -> Any:
    """Return a role's own value, or that of both."""
    return given[min(place, len(given) - 1)] if given else None


def _fetch(url: str, texts: list[str], path: Path, **settings: Any) -> Path:
    from specviz.servers import fetch_outputs

    left = f"the texts that had arrived are in {path}"
    with keeping(lambda: left):
        return fetch_outputs(url, texts, path, **settings)


def _check(
    files: dict[str, Path | None],
    urls: dict[str, str | None],
    pairs: dict[str, tuple[object, ...]],
) -> None:
    """Raise ValueError or FileNotFoundError for what cannot be used together."""
    from specviz.servers.client import check_url

    for name, values in pairs.items():
        if len(values) > len(urls) or (name == "concurrency" and not values):
            raise ValueError(
                f"--{name} must be one or two values, got {len(values)}; pass one, or the "
                "reference's and the candidate's"
            )
    for role, url in urls.items():
        path = files[role]
        if url is not None:
            check_url(f"{role}_url", url)
        if path is None and url is None:
            raise ValueError(f"--{role} or --{role}-url is needed; give one of them")
        if path is not None and url is not None:
            raise ValueError(
                f"--{role} {shown_path(path)} and --{role}-url {url} exclude each other; give one"
            )
        if url is not None and files["prompts"] is None:
            raise ValueError(f"--{role}-url needs prompts to send; give --prompts too")
    for name, path in files.items():
        if path is not None and not is_file(path):
            raise FileNotFoundError(
                f"--{name} {quoted_path(path)} is not a file; pass the path of a JSONL file"
            )
