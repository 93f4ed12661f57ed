"""A model's files."""
