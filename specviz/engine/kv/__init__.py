"""Where K/V lies and how it moves.

Only `slabs.py` touches the cache classes of transformers.
"""
