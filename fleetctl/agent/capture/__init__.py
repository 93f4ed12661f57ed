"""What an environment is, read from its files."""
