"""How a command ends: its exit status and, if it failed, one sentence on stderr with the remedy."""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from specviz.engine.names import OWN_OBJECT
from specviz.util.errors import ServerError
from specviz.util.files import WriteError
from specviz.util.text import harmless

DONE = 0
FAILED = 1
MISUSED = 2
INTERRUPTED = 130
NOTHING_KEPT = "files written so far are complete, and nothing else is kept; run it again"
READ_ALL = "send it to a disk with room, or to a reader that reads all of it"
# An error with one of these numbers and without a file name concerns standard output.
_OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)


class NotPassedError(Exception):
    """What a command judges did not pass; the message says why."""


def end(command: str, flags: Mapping[str, str], run: Callable[[], None]) -> int:
    """Call `run` and return the exit status.

    The status is 0 if all went well, 1 if what was judged did not pass, if the machine lacks
    memory, or room or rights to write, or if another program's server fails, 2 for an argument that
    cannot be used or a library that is missing, and 130 after Ctrl-C.

    Args:
        command: the name that the sentence begins with.
        flags: options as they are typed, by the names that the library's errors give them.
    """
    try:
        try:
            run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt as error:
        return _report(command, INTERRUPTED, f"interrupted; {str(error) or NOTHING_KEPT}")
    except (NotPassedError, WriteError, ServerError) as error:
        return _report(command, FAILED, error)
    except SystemExit as error:  # tyro has said what is wrong
        return error.code if isinstance(error.code, int) else DONE
    except (ValueError, ImportError, OSError) as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_ERRORS:
            return _report(command, FAILED, _output_lost(error))
        return _report(command, MISUSED, as_typed(str(error), flags))
    except MemoryError as error:
        why = str(error) or "the machine is out of memory; lower the batch size or the lengths"
        return _report(command, FAILED, why)
    return DONE


@contextmanager
def keeping(what: Callable[[], str]) -> Iterator[None]:
    """Let an interruption inside the block say what it leaves."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(str(error) or what()) from None


def check_finished(status: Sequence[str]) -> None:
    """Raise KeyboardInterrupt if prompts were interrupted. Call it once their texts are saved."""
    unfinished = status.count("interrupted")
    if unfinished:
        raise KeyboardInterrupt(
            f"{unfinished} of {len(status)} prompts had not ended; their partial texts are above; "
            "run it again"
        )


def _report(command: str, status: int, why: object) -> int:
    sentence = " ".join(str(why).split()).replace(OWN_OBJECT, "")
    print(harmless(f"{command}: {sentence}"), file=sys.stderr)
    return status


def as_typed(sentence: str, flags: Mapping[str, str]) -> str:
    """Name options in an error of the library as they are typed: `batch_size=0` as --batch-size 0.

    flags: by the name of the argument, "batch_size", the option, "--batch-size".
    """
    # The first word is the argument, perhaps one of those in a list: strategy, of --strategies.
    found = re.match(r"([a-z_]+)(\[\d+\])?(=| (?=must|has|names|takes|'))", sentence)
    if found:
        name = found[1]
        plurals = (name, f"{name}s", re.sub("y$", "ies", name))
        flag = next((flags[each] for each in plurals if each in flags), None)
        if flag is not None:
            sentence = f"{flag} {sentence[found.end() :]}"
    # Elsewhere only what is no English word.
    for name, flag in flags.items():
        if "_" in name:
            sentence = re.sub(rf"(?<![\w.'\"(-]){name}(=| |(?=[,;.]|$))", rf"{flag}\1", sentence)
            sentence = sentence.replace(f"{flag}=", f"{flag} ")
    return sentence


def _output_lost(error: OSError) -> str:
    """Send the rest of standard output nowhere, or Python would fail again when it flushes it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return f"standard output: cannot be written ({error.strerror or error}); {READ_ALL}"
