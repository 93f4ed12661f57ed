"""fleetctl: deploy, swap, diagnose and benchmark LLM servers on your own GPU hosts."""

__version__ = "0.1.0"
