"""The stand-in stacks as venvs on the lab's hosts, where the brief has them."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Lab
from tests.standins.stack import Distribution, archive

REFERENCE, TRAINING = "/root/ml-env", "/root/venv"


def install(lab: Lab, host: str, path: str, distributions: list[Distribution], folder: Path) -> None:
    """A venv at ``path`` on ``host`` with the distributions in it; what was there goes."""
    packed = lab.state(host) / "standins.zip"
    packed.write_bytes(archive(distributions, folder))
    site = f"$(echo {path}/lib/python3.*/site-packages)"
    lab.run(
        host,
        f"rm -rf {path} && /usr/bin/python3 -m venv --without-pip {path} && "
        f"/usr/bin/python3 -m zipfile -e /var/lib/fleetctl/standins.zip {site} && rm /var/lib/fleetctl/standins.zip && "
        f"cp /bin/true {path}/bin/ninja",
    )


def snapshot(lab: Lab, host: str, path: str) -> str:
    """What is in a folder, bit for bit, with times and rights: one digest."""
    listing = "find . -printf '%p %y %m %s %T@ %l\\n' | sort"
    contents = "find . -type f -print0 | sort -z | xargs -0 sha256sum"
    return lab.run(host, f"cd {path} && ({listing}; {contents}) | sha256sum").stdout
