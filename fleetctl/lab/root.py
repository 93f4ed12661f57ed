"""A lab host's root: this machine's own files below, an empty writable layer above.

What must not be seen in the host (the operator's keys and units, logs, fstab) is hidden by folders
of the upper layer that are marked opaque, and by files of the same name.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from fleetctl.errors import Exit, FleetError
from fleetctl.lab import gpus, hardware, system
from fleetctl.lab.inventory import LabHost
from fleetctl.lab.paths import IDENTITY, LAB_DIR, RAM, HostPaths

HOST_KEY = "ssh_host_ed25519_key"

_HIDDEN = (
    "etc/init.d",
    "etc/ssh",
    "etc/systemd/system",
    "home",
    "root",
    "tmp",
    "usr/local/lib/systemd",
    "var/lib/fleetctl",
    str(LAB_DIR).lstrip("/"),
    "var/log",
    "var/tmp",
)
_MODES = {"root": 0o700, "tmp": 0o1777, "var/tmp": 0o1777}

_MASKED = (
    "console-getty.service",
    "dev-hugepages.mount",
    "getty.target",
    "kmod-static-nodes.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-logind.service",
    "systemd-modules-load.service",
    "systemd-random-seed.service",
    "systemd-sysctl.service",
    "systemd-sysusers.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-update-utmp.service",
    "systemd-user-sessions.service",
)

_SSH_UNIT = """\
[Unit]
Description=OpenBSD Secure Shell server
After=network.target

[Service]
Type=notify
ExecStart=/usr/sbin/sshd -D
ExecReload=/bin/kill -HUP $MAINPID
KillMode=process
Restart=on-failure
RuntimeDirectory=sshd
RuntimeDirectoryMode=0755

[Install]
WantedBy=multi-user.target
"""

# Without sntrup761: that exchange alone takes 80 ms a login.
_SSHD_CONFIG = f"""\
HostKey /etc/ssh/{HOST_KEY}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM yes
UseDNS no
KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256
MaxStartups 200:30:400
MaxSessions 100
PrintMotd no
PrintLastLog no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""

# A login asks nobody but sshd itself: no session manager, no message of the day.
_SSHD_PAM = """\
auth required pam_deny.so
account required pam_permit.so
password required pam_deny.so
session required pam_permit.so
"""


def mount(host: LabHost, hosts: list[LabHost]) -> None:
    """Lay the host's upper layer out and mount its root."""
    paths = HostPaths(host.name)
    for folder in (paths.upper, paths.work, paths.root, paths.state):
        folder.mkdir(parents=True)
    _hide(paths.upper)
    _lay_out(paths, host, hosts)
    layers = f"lowerdir=/,upperdir={paths.upper},workdir={paths.work}"
    system.run("mount", "-t", "overlay", "overlay", "-o", layers, str(paths.root))
    require_own_overlay(paths)
    for needed in ("usr/bin/python3", "usr/sbin/sshd"):
        if not (paths.root / needed).exists():
            raise FleetError(
                f"/{needed} is not on this machine's root file system, which the lab's hosts share",
                where=host.name,
                exit=Exit.PREFLIGHT,
            )


def require_own_overlay(paths: HostPaths) -> None:
    """Refuse to boot anything but the overlay that the lab itself mounted for this host.

    A systemd that boots on shared folders empties their /tmp and starts their units.
    """
    root = paths.root
    device = root.stat().st_dev if root.is_mount() else -1
    at_root = (mount for mount in system.mounts() if mount.path == str(root) and mount.device == device)
    top = next(at_root, None)
    ours = (
        top is not None
        and top.fstype == "overlay"
        and top.options.get("upperdir") == str(paths.upper)
        and paths.upper.is_relative_to(LAB_DIR)
        and not root.is_symlink()
        and root.resolve() == root
        and not root.samefile("/")
    )
    if not ours:
        seen = f"{top.fstype} with upperdir {top.options.get('upperdir', '-')}" if top else "no mount"
        raise FleetError(
            f"refuses to boot {root}: it is not the lab's own overlay mount but {seen}",
            where=paths.name,
            fix="fleetctl lab down, then fleetctl lab up",
            exit=Exit.PREFLIGHT,
        )


def remove(paths: HostPaths) -> None:
    """Unmount the host's root and remove its folders."""
    system.unmount(paths.root)
    shutil.rmtree(RAM / paths.name, ignore_errors=True)
    strange = system.mounted_below(paths.dir)
    if strange:
        raise FleetError(
            f"something else is mounted in the host's folder: {strange[0]}",
            where=paths.name,
            fix=f"umount {strange[0]}, then try again",
            exit=Exit.PREFLIGHT,
        )
    for child in paths.dir.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        elif child != paths.record:
            child.unlink()
    # The record goes last: removing that was cut short is taken up again by the next command.
    paths.record.unlink(missing_ok=True)
    paths.dir.rmdir()


def mount_ram() -> None:
    """Mount the tmpfs that holds the upper layers."""
    if not RAM.is_mount():
        RAM.mkdir(parents=True, exist_ok=True)
        system.run("mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", str(RAM))


def unmount_ram() -> None:
    """Unmount the tmpfs; with it goes everything the hosts wrote to their roots."""
    system.unmount(RAM)
    if RAM.exists():
        RAM.rmdir()


def _hide(upper: Path) -> None:
    for name in _HIDDEN:
        folder = upper / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(_MODES.get(name, 0o755))
        try:
            os.setxattr(folder, "trusted.overlay.opaque", b"y")
        except OSError as error:
            raise FleetError(
                f"this kernel's tmpfs cannot mark a folder opaque for overlay: {error.strerror}",
                where=str(folder),
                exit=Exit.PREFLIGHT,
            ) from error


def _lay_out(paths: HostPaths, host: LabHost, hosts: list[LabHost]) -> None:
    upper = paths.upper
    names = "".join(f"{other.address} {other.name}\n" for other in hosts)
    _write(upper / "etc/hostname", host.name + "\n")
    _write(upper / "etc/hosts", "127.0.0.1 localhost\n::1 localhost\n" + names)
    _write(upper / "etc/resolv.conf", "# a lab host reaches its neighbours only\n")
    _write(upper / "etc/machine-id", secrets.token_hex(16) + "\n")
    _write(upper / "etc/fstab", "")
    _write(upper / "etc/crypttab", "")
    _write(upper / "etc/ssh/sshd_config", _SSHD_CONFIG)
    _write(upper / "etc/pam.d/sshd", _SSHD_PAM)
    for suffix, mode in (("", 0o600), (".pub", 0o644)):
        _write(upper / f"etc/ssh/{HOST_KEY}{suffix}", (paths.keys / f"{HOST_KEY}{suffix}").read_text(), mode)
    public = IDENTITY.with_name(IDENTITY.name + ".pub").read_text()
    (upper / "root/.ssh").mkdir(mode=0o700)
    _write(upper / "root/.ssh/authorized_keys", public, 0o600)
    (upper / "var/log/journal").mkdir()
    _lay_out_units(upper / "etc/systemd/system")
    gpus.install(upper, host.gpus)
    hardware.install(upper)
    # Newer than any file of the system, so that systemd finds nothing to update at the first boot.
    for stamp in ("etc/.updated", "var/.updated"):
        _write(upper / stamp, "")


def _lay_out_units(units: Path) -> None:
    for name in _MASKED:
        (units / name).symlink_to("/dev/null")
    _write(units / "ssh.service", _SSH_UNIT)
    wants = units / "multi-user.target.wants"
    wants.mkdir()
    (wants / "ssh.service").symlink_to("/etc/systemd/system/ssh.service")
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
