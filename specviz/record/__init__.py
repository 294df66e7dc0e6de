"""The record of a run: its columns, its file, and its replay into cache slots.

Knows numpy alone.
"""
