"""Show a decoder's source, and make a copy of it in which a line is replaced.

Contract: the decoder itself is left as it is. Not known here: what is wrong with it.
"""

import inspect
import linecache
from itertools import count
from types import ModuleType

from IPython.display import Markdown

from checks.base import WrongAnswerError

_numbers = count(1)


def shown(decoder: ModuleType, folded: bool = False) -> Markdown:
    """Return the source of a decoder for a notebook: all that follows its imports.

    `folded` hides the code until the reader unfolds it.
    """
    source = inspect.getsource(decoder)
    begin = source.index("@torch.inference_mode()")
    docstring = inspect.getdoc(decoder)
    code = f"```python\n{source[begin:]}```"
    if folded:
        code = f"<details><summary>Show the code</summary>\n\n{code}\n\n</details>"
    return Markdown(f"{docstring}\n\n{code}")


def mended(decoder: ModuleType, old: object, new: object) -> ModuleType:
    """Return a copy of a decoder in which `new` stands in place of `old`.

    Args:
        decoder: one of this folder's modules, or a copy that was mended before.
        old: a part of its source that occurs once, such as a line.
        new: what takes its place.

    Raises:
        WrongAnswerError: `old` is not a text, or does not occur once.
        SyntaxError: the new source is not Python.
    """
    if not isinstance(old, str) or not isinstance(new, str):
        raise WrongAnswerError(
            f"old and new must be texts, got {old!r} and {new!r}; pass lines of code"
        )
    source = inspect.getsource(decoder)
    found = source.count(old) if old else 0
    if found != 1:
        raise WrongAnswerError(
            f"old must occur once in {decoder.__name__}, got {old!r}, which occurs {found} times; "
            "copy a whole line of the source"
        )
    name = f"mended_{next(_numbers)}"
    source = source.replace(old, new)
    copy = ModuleType(name, decoder.__doc__)
    copy.__file__ = f"<{name}>"
    # So that inspect and tracebacks find the lines of the copy.
    linecache.cache[copy.__file__] = (len(source), None, source.splitlines(True), copy.__file__)
    exec(compile(source, copy.__file__, "exec"), copy.__dict__)
    return copy
