"""Where a new dialog goes: pure decisions over names and partition counts."""
