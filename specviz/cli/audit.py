"""`specviz audit`: judge the outputs of a decoder against a reference, for a person or a CI."""

import argparse

from specviz.cli.audit_servers import add_servers, check_servers, fetch_sides, kept
from specviz.cli.exit import NotPassedError
from specviz.prompts import load_prompts
from specviz.studies.arguments import (
    DEVICES,
    DTYPE_NAMES,
    DTYPES,
    check_counts,
    check_device,
    check_keeps,
    check_model,
    file_path,
    integer,
)
from specviz.studies.output import print_written
from specviz.util.files import check_writable, is_file
from specviz.util.validate import quoted_path, require_choice

__all__ = ["add_arguments", "kept", "run"]
_FILES = ("reference", "candidate", "control", "prompts")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "outputs to trust: JSONL, or as other tools save them; docs/audit.md has the forms"
    parser.add_argument("--reference", type=file_path, metavar="PATH", help=text)
    text = "outputs to judge, of the same prompts in the same order"
    parser.add_argument("--candidate", type=file_path, metavar="PATH", help=text)
    text = "hub id or folder of the target, which scores the texts where they part"
    parser.add_argument("--target", help=text)
    text = "outputs of the reference's decoder in another batch, to compare with"
    parser.add_argument("--control", type=file_path, metavar="PATH", help=text)
    text = "JSONL with the prompts under 'prompt', for outputs that name none"
    parser.add_argument("--prompts", type=file_path, metavar="PATH", help=text)
    parser.add_argument("--device", help=DEVICES)
    parser.add_argument("--dtype", help=f"of the runs: {DTYPES} (the target's own)")
    text = "rows of the candidate's batch, for the noise (%(default)s)"
    parser.add_argument("--batch-size", type=integer, default=8, metavar="B", help=text)
    text = "draft tokens a row and round, for the noise (%(default)s)"
    parser.add_argument("--num-draft-tokens", type=integer, default=5, metavar="K", help=text)
    text = "the HTML page (beside the candidate, to .html)"
    parser.add_argument("--report", type=file_path, metavar="PATH", help=text)
    add_servers(parser)


def run(options: argparse.Namespace) -> None:
    _check(options)
    candidate = options.candidate or options.outputs / "candidate.jsonl"
    out = options.report or candidate.with_suffix(".html")
    check_writable(out)
    check_keeps(out, **{name: getattr(options, name) for name in _FILES})
    prompts = None
    if options.prompts is not None:
        prompts = load_prompts("jsonl", options.prompts, field="prompt")
    fetch_sides(options, prompts)

    import specviz as sv
    from specviz.views.audit_page import save_audit

    found = sv.audit(
        options.reference,
        options.candidate,
        options.target,
        options.control,
        prompts=prompts,
        device=options.device,
        dtype=options.dtype,
        batch_size=options.batch_size,
        num_draft_tokens=options.num_draft_tokens,
    )
    print(found)
    print()
    print_written([save_audit(found, out)])
    if not found.passed:
        raise NotPassedError(found.verdict)


def _check(options: argparse.Namespace) -> None:
    """Raise ValueError, FileNotFoundError or WriteError for what cannot be used."""
    check_servers(options)
    check_counts(options, "batch_size")
    check_counts(options, "num_draft_tokens", minimum=0)
    check_device(options.device)
    check_model("target", options.target)
    if options.dtype is not None:
        require_choice("dtype", options.dtype, DTYPE_NAMES)
    for name in _FILES:
        path = getattr(options, name)
        if path is not None and not is_file(path):
            raise FileNotFoundError(
                f"{name}={quoted_path(path)} is not a file; pass the path of a JSONL file"
            )
