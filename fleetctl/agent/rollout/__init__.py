"""A rollout as the host carries it out: its lock, its steps, its record, its undo."""
