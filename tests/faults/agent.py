"""The agent with the tests' hook in it, otherwise byte for byte what is deployed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fleetctl.transport import agent as transport
from fleetctl.transport.payload import Payload, pack, sources

HOOK = Path(__file__).with_name("hook.py")
MAIN = b'if __name__ == "__main__":\n'


@cache
def hooked() -> Payload:
    """The payload."""
    files = sources()
    main = files["__main__.py"]
    assert main.count(MAIN) == 1
    called = MAIN + b"    import faults_hook\n\n    faults_hook.install()\n"
    return pack({**files, "__main__.py": main.replace(MAIN, called), "faults_hook.py": HOOK.read_bytes()})


def use() -> None:
    """Have this process's controller send the hooked agent."""
    transport.payload = hooked
