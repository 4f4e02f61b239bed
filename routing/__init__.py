"""Where a new dialog goes, by names and partition counts or by its first message: pure decisions."""
