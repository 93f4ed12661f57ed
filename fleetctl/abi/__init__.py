"""What compiled libraries want and give, read from their files: no import, no GPU, no CUDA toolkit.

Runs on the controller and, packed into the agent, on hosts: Python 3.9, stdlib, and of pyelftools only
``elftools.elf.structs`` (the rest of it needs Python 3.10, and an import five times as long).
"""
