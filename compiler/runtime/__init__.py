"""Building, loading, timing and checking the generated code of a program on this machine."""
