"""Measurements that `specviz study NAME` runs and writes to files."""
