"""`specviz study traffic`: what other policies would have given on a server's traffic."""

import argparse

from specviz.cli.rooflines import add_roofline, check_roofline, roofline_of
from specviz.studies.arguments import (
    add_out,
    check_counts,
    check_keeps,
    check_table,
    file_path,
    integer,
)
from specviz.studies.output import show
from specviz.util.files import check_writable, make_folder
from specviz.util.validate import require_list

STRATEGIES = ("inplace", "eqspec", "exspec")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "JSONL with statistics of each request: of vLLM, SGLang or AIPerf"
    parser.add_argument("log", type=file_path, metavar="LOG", help=text)
    sizes = [1, 8, 32]
    parser.add_argument("--batch-sizes", type=integer, nargs="+", default=sizes, metavar="B")
    drafts = [1, 2, 3, 4, 5]
    text = "(%(default)s, as far as the log drafted)"
    parser.add_argument(
        "--num-draft-tokens", type=integer, nargs="+", default=drafts, metavar="K", help=text
    )
    text = "(%(default)s)"
    parser.add_argument(
        "--strategies", nargs="+", default=list(STRATEGIES), metavar="NAME", help=text
    )
    add_roofline(parser)
    text = "of what is drawn where the log has no order of rounds (%(default)s)"
    parser.add_argument("--seed", type=integer, default=0, help=text)
    text = "save the table of the low end, to replay it"
    parser.add_argument("--table", type=file_path, metavar="PATH", help=text)
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_counts(options, "batch_sizes", "num_draft_tokens")
    check_counts(options, "seed", minimum=0)
    require_list("strategies", options.strategies)
    check_roofline(options)
    check_table(options.out)
    if options.out is not None:
        check_keeps(options.out.with_suffix(".json"), log=options.log)  # where its conditions go
    if options.table is not None:
        check_writable(options.table)
        check_keeps(options.table, log=options.log)

    from specviz.servers import acceptance_tables, read_log
    from specviz.studies.output import print_written
    from specviz.studies.traffic import replay_traffic, unanswered

    log = read_log(options.log)
    # Before the replay, which takes long: a log without order has no table.
    low = None if options.table is None else acceptance_tables(log).low
    roofline = roofline_of(options)
    table, found = replay_traffic(
        log,
        options.batch_sizes,
        options.num_draft_tokens,
        options.strategies,
        roofline=roofline,
        seed=options.seed,
    )
    show(table, found, options.out)
    print("\nThis log cannot answer:")
    for sentence in unanswered(log, max(options.num_draft_tokens)):
        print(f"- {sentence}")
    if low is not None:
        make_folder(options.table.parent)
        print_written([low.save(options.table)])
