"""The options of `specviz audit` for outputs that servers write, and how they are fetched."""

import argparse
from pathlib import Path
from typing import Any

from specviz.cli.exit import nothing_kept
from specviz.studies.arguments import file_path, integer, number
from specviz.util.files import check_writable
from specviz.util.validate import require_int, require_positive, shown_path

ROLES = ("reference", "candidate")
FOLDER = Path("runs/audit")
BOTH = "one, or the reference's and the candidate's"


def add_servers(parser: argparse.ArgumentParser) -> None:
    """Add the options of servers that speak the OpenAI protocol."""
    group = parser.add_argument_group("outputs of servers, fetched with the prompts of --prompts")
    for role in ROLES:
        text = f"instead of --{role}: a server, for instance http://localhost:8000/v1"
        group.add_argument(f"--{role}-url", metavar="URL", help=text)
    text = f"{BOTH} (the only one that the server lists)"
    group.add_argument("--model", nargs="+", metavar="NAME", help=text)
    text = f"requests under way at once: {BOTH} (%(default)s)"
    group.add_argument(
        "--concurrency", type=integer, nargs="+", default=[4], metavar="N", help=text
    )
    text = "completions or chat (%(default)s)"
    group.add_argument("--protocol", default="completions", metavar="NAME", help=text)
    text = "(%(default)s)"
    group.add_argument("--max-new-tokens", type=integer, default=128, metavar="N", help=text)
    text = "ask for the log-probabilities of N tokens a place, if the server gives them"
    group.add_argument("--logprobs", type=integer, metavar="N", help=text)
    text = "that one answer may take (%(default)s)"
    group.add_argument("--timeout", type=number, default=120.0, metavar="SECONDS", help=text)
    text = "folder of the fetched outputs; a second run goes on there (%(default)s)"
    group.add_argument("--outputs", type=file_path, default=FOLDER, metavar="PATH", help=text)


def check_servers(options: argparse.Namespace) -> None:
    """Raise ValueError or WriteError for what cannot be used, as far as no server is needed."""
    from specviz.servers.protocol import PROTOCOLS, check_url
    from specviz.util.validate import require_choice

    asked = [role for role in ROLES if getattr(options, f"{role}_url") is not None]
    for role in ROLES:
        path, url = getattr(options, role), getattr(options, f"{role}_url")
        if url is not None:
            check_url(f"{role}_url", url)
        if path is None and url is None:
            raise ValueError(f"--{role} or --{role}-url is needed; give one of them")
        if path is not None and url is not None:
            raise ValueError(
                f"--{role} {shown_path(path)} and --{role}-url {url} exclude each other; give one"
            )
    for place, number_of in enumerate(options.concurrency):
        require_int(f"concurrency[{place}]", number_of, maximum=1024)
    for name in ("concurrency", "model"):
        given = getattr(options, name) or []
        if len(given) > len(ROLES):
            raise ValueError(f"{name} must be one or two values, got {len(given)}; pass {BOTH}")
    require_choice("protocol", options.protocol, PROTOCOLS)
    require_int("max_new_tokens", options.max_new_tokens, maximum=2**31 - 1)
    if options.logprobs is not None:
        require_int("logprobs", options.logprobs, maximum=20)
    require_positive("timeout", options.timeout)
    if asked and options.prompts is None:
        raise ValueError(f"--{asked[0]}-url needs prompts to send; give --prompts too")
    if asked:
        check_writable(options.outputs, folder=True)


def fetch_sides(options: argparse.Namespace, prompts: list[str] | None) -> None:
    """Fetch the outputs of each server, and set `reference` and `candidate` to the files."""
    from specviz.servers import fetch_outputs

    for place, role in enumerate(ROLES):
        url = getattr(options, f"{role}_url")
        if url is None or prompts is None:
            continue
        out = options.outputs / f"{role}.jsonl"
        found = fetch_outputs(
            url,
            prompts,
            out,
            model=_of_role(options.model, place),
            protocol=options.protocol,
            max_new_tokens=options.max_new_tokens,
            concurrency=_of_role(options.concurrency, place),
            timeout_s=options.timeout,
            logprobs=options.logprobs,
        )
        setattr(options, role, found)


def kept(options: argparse.Namespace) -> str:
    """Say what an interrupted audit leaves."""
    if options.reference_url is None and options.candidate_url is None:
        return nothing_kept(options)
    return f"the texts that had arrived are in {options.outputs}; run it again to go on there"


def _of_role(given: list[Any] | None, place: int) -> Any:
    """Return a role's own value, or that of both."""
    return None if not given else given[min(place, len(given) - 1)]
