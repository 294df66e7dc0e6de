"""The embedded pair and its draft heads, and training of heads for any target."""
