"""The commands: one module a command; each parses, calls and prints."""
