"""What Python prints of an object, read back as plain values; nothing is executed.

Contract: a text such as `RequestOutput(prompt='a', outputs=[CompletionOutput(...)])` goes in;
dicts, lists, numbers and texts come out. A call becomes a dict of its keyword arguments, a bare
word a text.
"""

import ast
import math
import warnings
from typing import Any

_NAMES = {"inf": math.inf, "nan": math.nan}


def read_printed(text: str) -> Any:
    """Return the plain values of a printed object.

    Raises:
        ValueError: the text is not an expression of Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a text that was not printed may hold odd escapes
            tree = ast.parse(text.strip(), mode="eval")
        return _plain(tree.body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("it is not what Python prints of an object") from error


def _plain(node: ast.expr) -> Any:
    """Return the value of a node; None for what has no plain value."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(each) for each in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_key(key): _plain(value) for key, value in pairs if key is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _plain(node.operand)
        return -value if isinstance(value, int | float) else None
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id, node.id)
    if isinstance(node, ast.Call):
        return _call(node)
    return None


def _key(node: ast.expr) -> Any:
    value = _plain(node)
    return value if isinstance(value, str | int | float) else None


def _call(node: ast.Call) -> Any:
    # array('l', [1, 2]) stands for its list.
    if node.args and not node.keywords and isinstance(node.args[-1], ast.List):
        return _plain(node.args[-1])
    return {each.arg: _plain(each.value) for each in node.keywords if each.arg is not None}
