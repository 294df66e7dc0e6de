"""Where K/V lies and how it moves.

The only room that touches a cache class of transformers is `cache.py`.
"""
