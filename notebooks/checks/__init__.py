"""Checks behind the notebooks' exercises, a module for each notebook.

Contract: no answer of a reader, however wrong, stops a notebook.
"""
