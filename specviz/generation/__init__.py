"""From a caller's arguments to a result: options, the run, what was collected."""
