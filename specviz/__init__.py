"""specviz: see, check and compare batch speculative decoding.

    import specviz as sv
    pair = sv.load_pair()
    result = sv.generate(pair, ["def add(a, b):"], strategy="eqspec", record=True)

Names are imported when they are first used, so that reading a trace imports no torch. They stand in
`__init__.pyi`.
"""

import os
import sys
from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("specviz")

# torch's threads wait for one another after each operation. By default they spin, which costs a
# busy machine many times the work itself. OpenMP reads this once, when torch is imported.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
