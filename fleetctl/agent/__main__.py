"""The agent's command line: ``serve`` on stdin and stdout; ``rollout DIR`` and ``recover DIR`` in units,
``keep DIR`` where there are none.

Written in the syntax of Python 3.5: a host whose ``python3`` is too old gets an answer and no traceback.
"""

import os
import sys

OLDEST = (3, 9)


def newer_python() -> "str | None":
    """A Python on the PATH that is new enough, or None; looked for where ``python3`` itself is too old."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    for minor in range(20, OLDEST[1] - 1, -1):
        for folder in folders:
            path = "%s/python3.%d" % (folder, minor)
            if os.access(path, os.X_OK):
                return path
    return None


def main() -> int:
    """Dispatch; the exit status is the called part's."""
    if sys.version_info < OLDEST:
        python = newer_python()
        if python is not None:
            os.execv(python, [python, "-I", "-S"] + sys.argv)  # noqa: RUF005
        print("fleetctl-agent old-python %s %s" % (sys.executable, sys.version.split()[0]))
        return 3
    unpacked = sys.argv[0][: -len(".pyz")]
    if sys.argv[0].endswith(".pyz") and os.path.isdir(unpacked):  # noqa: PTH112
        sys.path.insert(0, unpacked)
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb == "serve":
        from fleetctl.agent.serve import serve

        return serve()
    if verb in ("rollout", "recover", "keep") and len(sys.argv) == 3:
        if verb == "recover" and os.path.exists(os.path.join(sys.argv[2], "result.json")):  # noqa: PTH110, PTH118
            return 0
        import importlib

        module = {"rollout": "run", "recover": "recover", "keep": "keeper"}[verb]
        return int(importlib.import_module("fleetctl.agent.rollout." + module).main(sys.argv[2]))
    print("usage: agent serve | rollout DIR | recover DIR | keep DIR", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
