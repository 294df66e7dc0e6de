"""The log of any engine: its writer, its file, and its way to a `Trace`.

`TraceWriter` checks each forward, move and round where it is given. Knows numpy alone.
"""
