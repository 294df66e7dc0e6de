"""Everything that counts and checks: numpy and pandas on recorded numbers, with neither models nor pictures."""
