"""Become the server of a unit: what systemd does between fork and exec, on a host without it.

Run as ``launcher.py JOB.json`` by supervisord; stands alone. The job: ``{"argv", "environment", "files", "folder",
"user", "limits"}``. ``files`` are read as systemd reads an ``EnvironmentFile=``, before the user is taken.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import resource
import sys
from pathlib import Path
from typing import Any, Dict

PAIR = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)=(?:"((?:[^"\\]|\\.)*)"|(.*))')


def variables(text: str) -> Dict[str, str]:
    """The variables of an environment file with one assignment a line."""
    found = {}
    for line in text.splitlines():
        match = PAIR.fullmatch(line.strip())
        if match:
            found[match[1]] = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
    return found


def main(job: Dict[str, Any]) -> None:
    """Take limits, variables, user and folder, and become the program."""
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": os.environ.get("LANG", "C.UTF-8")}
    environment.update({name: os.environ[name] for name in os.environ if name.startswith("SUPERVISOR_")})
    # SGLang and vLLM rename their processes by setproctitle, which else wipes the variables by which they are known.
    environment["SPT_NOENV"] = "1"
    for name, wanted in job["limits"].items():
        number = getattr(resource, name)
        wanted = resource.RLIM_INFINITY if wanted is None else wanted
        try:
            resource.setrlimit(number, (wanted, wanted))
        except (ValueError, OSError):
            print(f"fleetctl: {name} stays at {resource.getrlimit(number)[0]}", file=sys.stderr)
    account = pwd.getpwnam(job["user"]) if job["user"] else pwd.getpwuid(os.getuid())
    environment.update({"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name})
    environment.update(job["environment"])
    for path in job["files"]:
        environment.update(variables(Path(path).read_text(encoding="utf-8")))
    if job["home"] and os.getuid() == 0:
        os.makedirs(job["home"], mode=0o755, exist_ok=True)  # noqa: PTH103
        os.chown(job["home"], account.pw_uid, account.pw_gid)
    if account.pw_uid != os.getuid():
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    os.chdir(job["folder"])
    os.execve(job["argv"][0], job["argv"], environment)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
