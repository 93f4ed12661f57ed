"""Runs on hosts: standard library only, Python 3.9 to 3.14, imports nothing of the rest."""
