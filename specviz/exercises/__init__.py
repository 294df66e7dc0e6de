"""Checks behind the notebooks' exercises, a module for each notebook. None of them stops a notebook, whatever the answer is."""
