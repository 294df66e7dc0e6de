"""Run the engine and collect what it writes: `generate`, its `Result`, interleaved runs."""
