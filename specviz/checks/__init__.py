"""Whether a run was in step, and whether two runs wrote the same."""
