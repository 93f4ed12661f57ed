"""The slots of a host, told from the ports and GPUs of what runs there."""

from __future__ import annotations

import re

from fleetctl.adoption.draft import Draft, Found, unique


def slot_of(draft: Draft, server: Found, wanted: str) -> str:
    """The slot of a server's port, made where there is none; ``wanted`` is the name that its unit says."""
    port = server["port"]
    gpus, note = _gpus(server)
    for name, slot in draft.slots.items():
        if slot["port"] == port:
            if gpus and gpus != slot["gpus"]:
                said = ", ".join(map(str, gpus))
                draft.note(("slots", name), f"{server['unit'] or server['launcher']} uses the GPUs {said}")
            return name
    taken = {gpu: name for name, slot in draft.slots.items() for gpu in slot["gpus"]}
    free = [gpu for gpu in gpus if gpu not in taken and gpu < draft.gpus["count"]]
    name = unique(wanted or _name(free, port), draft.slots)
    draft.slots[name] = {"gpus": free, "port": port}
    key = ("slots", name)
    for gpu in gpus:
        if gpu in taken:
            draft.note(
                key, f"runs on GPU {gpu} too, which the slot {taken[gpu]} has: a GPU belongs to one slot"
            )
        elif gpu >= draft.gpus["count"]:
            draft.note(key, f"names GPU {gpu}, which nvidia-smi does not show")
    if note:
        draft.note(key, note)
    return name


def _name(gpus: list[int], port: int) -> str:
    if not gpus:
        return f"port-{port}"
    if len(gpus) > 2 and gpus == list(range(gpus[0], gpus[-1] + 1)):
        return f"gpu{gpus[0]}-{gpus[-1]}"
    return f"gpu{'-'.join(str(gpu) for gpu in gpus)}"


def _gpus(server: Found) -> tuple[list[int], str]:
    """The GPUs that a server uses, and what is not certain of them."""
    if server["gpus"]:
        return sorted(server["gpus"]), ""
    said = server["variables"].get("CUDA_VISIBLE_DEVICES")
    if said is None:
        return (
            [],
            "which GPUs it uses is not known: it names none, and nvidia-smi shows none of its processes",
        )
    parts = [part.strip() for part in said.split(",") if part.strip()]
    if not all(re.fullmatch(r"[0-9]{1,4}", part) for part in parts):
        return (
            [],
            f"CUDA_VISIBLE_DEVICES={said}: which these are is not known, since nvidia-smi shows no process on them",
        )
    note = "" if not parts else "GPUs as CUDA_VISIBLE_DEVICES says; nvidia-smi shows none of its processes"
    if parts and server["variables"].get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        note += ", and without CUDA_DEVICE_ORDER=PCI_BUS_ID they may be others"
    return sorted({int(part) for part in parts}), note
