"""How a command ends: its exit status and, where it did not do what was asked, one sentence on stderr that says what is left of it."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from specviz.util.files import WriteError
from specviz.util.text import harmless

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130
READ_ALL = "send it to where there is room, or to who reads it all"
_FULL = (
    errno.EPIPE,
    errno.ENOSPC,
    errno.EFBIG,
    errno.EDQUOT,
    errno.EIO,
)  # without the name of a file, this is standard output


def end(options: argparse.Namespace) -> int:
    """Run `options.run`. Returns 0; 1 where the machine has no room or rights to write, or no memory; 2 for an argument that cannot be used
    or a library that is missing; 130 after Ctrl-C."""
    try:
        options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        return _said(options, INTERRUPTED, f"interrupted; {str(error) or kept(options)}")
    except WriteError as error:
        return _said(options, FAILED, error)
    except (ValueError, ImportError, OSError) as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
            return _said(options, FAILED, _output_lost(error))
        return _said(options, MISUSED, error)
    except MemoryError as error:
        return _said(
            options,
            FAILED,
            error if str(error) else "the machine is out of memory; ask for less at a time",
        )
    return DONE


def kept(options: argparse.Namespace) -> str:
    """What an interrupted command leaves, and how to go on."""
    if options.command == "bench":
        log = options.out / "bench.jsonl.partial"
        return (
            f"what is measured is kept in {log}, and the same command goes on there"
            if log.exists()
            else "nothing is measured yet"
        )
    if options.command == "agreement":
        table = options.out or Path("figures/data/agreement-<dtype>.csv")
        return f"the cells that are measured stand in {table}, and the same command goes on there"
    if options.command == "train":
        return f"checkpoints are kept in {options.out / 'checkpoints'}, and the same command goes on there"
    return "what it wrote to files by then is whole, and nothing else is kept; run it again"


def check_finished(status: Sequence[str]) -> None:
    """Raise KeyboardInterrupt where prompts were interrupted, once what there is of them is printed and saved."""
    if left := status.count("interrupted"):
        raise KeyboardInterrupt(
            f"{left} of {len(status)} prompts had not ended, and stand above as far as they came; run it again"
        )


def _said(options: argparse.Namespace, status: int, why: object) -> int:
    print(harmless(f"specviz {options.command}: {' '.join(str(why).split())}"), file=sys.stderr)
    return status


def _output_lost(error: OSError) -> str:
    """What the command prints goes nowhere any more: neither does what Python would print when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return f"standard output: cannot be written ({error.strerror or error}); {READ_ALL}"
