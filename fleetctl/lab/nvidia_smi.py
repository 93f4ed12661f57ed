#!/usr/bin/python3 -IS
"""A lab host's ``nvidia-smi``: answers from a recorded state as the real one (driver 580) words it.

Runs on the host's own Python, 3.9 or later, and imports nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
import time

TYPE_CHECKING = False  # typing and pathlib take as long to import as all the rest; the real one takes 30 ms
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Tuple

    Json = Dict[str, Any]
    Field = Tuple[str, str, Callable[[Json, Json], Any]]

STATE = "/etc/fleetctl-lab/gpus.json"
BAD_ARGUMENT = 2
NO_DEVICES = 6
GPU_IS_LOST = 15
UNKNOWN_ERROR = 255
ABSENT = "[N/A]"

# field: (name in the header, unit, how to read it from the host's state and the GPU's)
GPU_FIELDS: dict[str, Field] = {
    "timestamp": ("timestamp", "", lambda host, gpu: time.strftime("%Y/%m/%d %H:%M:%S.000")),
    "count": ("count", "", lambda host, gpu: len(host["gpus"])),
    "driver_version": ("driver_version", "", lambda host, gpu: host["driver_version"]),
    "index": ("index", "", lambda host, gpu: gpu["index"]),
    "name": ("name", "", lambda host, gpu: gpu["name"]),
    "uuid": ("uuid", "", lambda host, gpu: gpu["uuid"]),
    "pci.bus_id": ("pci.bus_id", "", lambda host, gpu: gpu["bus_id"]),
    "compute_cap": ("compute_cap", "", lambda host, gpu: gpu["compute_cap"]),
    "compute_mode": ("compute_mode", "", lambda host, gpu: "Default"),
    "persistence_mode": ("persistence_mode", "", lambda host, gpu: "Enabled"),
    "ecc.errors.uncorrected.volatile.total": (
        "ecc.errors.uncorrected.volatile.total",
        "",
        lambda host, gpu: gpu.get("ecc_uncorrected", 0),
    ),
    "retired_pages.double_bit.count": ("retired_pages.double_bit.count", "", lambda host, gpu: "[N/A]"),
    "remapped_rows.uncorrectable": (
        "remapped_rows.uncorrectable",
        "",
        lambda host, gpu: gpu.get("remapped_rows", 0),
    ),
    "remapped_rows.failure": ("remapped_rows.failure", "", lambda host, gpu: "No"),
    "mig.mode.current": ("mig.mode.current", "", lambda host, gpu: "Disabled"),
    "pstate": ("pstate", "", lambda host, gpu: gpu["pstate"]),
    "temperature.gpu": ("temperature.gpu", "", lambda host, gpu: gpu["temperature"]),
    "memory.total": ("memory.total", "MiB", lambda host, gpu: gpu["memory_total"]),
    "memory.reserved": ("memory.reserved", "MiB", lambda host, gpu: gpu["memory_reserved"]),
    "memory.used": ("memory.used", "MiB", lambda host, gpu: gpu["memory_used"]),
    "memory.free": (
        "memory.free",
        "MiB",
        lambda host, gpu: max(0, gpu["memory_total"] - gpu["memory_reserved"] - gpu["memory_used"]),
    ),
    "utilization.gpu": ("utilization.gpu", "%", lambda host, gpu: gpu["utilization"]),
    "power.draw": ("power.draw", "W", lambda host, gpu: f"{gpu['power']:.2f}"),
    "power.limit": ("power.limit", "W", lambda host, gpu: f"{gpu['power_limit']:.2f}"),
}
for alias, field in (("gpu_name", "name"), ("gpu_uuid", "uuid"), ("gpu_bus_id", "pci.bus_id")):
    GPU_FIELDS[alias] = GPU_FIELDS[field]

APP_FIELDS: dict[str, Field] = {
    "timestamp": GPU_FIELDS["timestamp"],
    "gpu_name": ("gpu_name", "", lambda host, app: host["gpus"][app["gpu"]]["name"]),
    "gpu_uuid": ("gpu_uuid", "", lambda host, app: host["gpus"][app["gpu"]]["uuid"]),
    "gpu_bus_id": ("gpu_bus_id", "", lambda host, app: host["gpus"][app["gpu"]]["bus_id"]),
    "pid": ("pid", "", lambda host, app: app["pid"]),
    "process_name": ("process_name", "", lambda host, app: app["name"]),
    "used_gpu_memory": ("used_gpu_memory", "MiB", lambda host, app: app["memory"]),
}
for alias, field in (("name", "process_name"), ("used_memory", "used_gpu_memory")):
    APP_FIELDS[alias] = APP_FIELDS[field]

NO_HANDLE = "Unable to determine the device handle for GPU{}: {}"
HINTS = {"GPU is lost": ".  Reboot the system to recover this GPU"}

RULE = "+-----------------------------------------+------------------------+----------------------+"


def main(argv: list[str]) -> int:
    """Answer one command line; the exit status."""
    with open(STATE, encoding="utf-8") as file:  # noqa: PTH123
        host: Json = json.load(file)
    for index, gpu in enumerate(host["gpus"]):
        gpu["index"] = index
    time.sleep(host.get("hang_s", 0))
    if host.get("broken"):
        print(host["broken"]["text"])
        return int(host["broken"]["status"])
    if argv == ["--version"]:
        return versions(host)
    if argv[:1] == ["topo"]:
        return topology(host, argv[1:])
    options, problem = parse(argv)
    if problem:
        print(problem)
        return BAD_ARGUMENT
    gpus, problem = selected(host, options.get("id"))
    if problem:
        print(problem)
        return NO_DEVICES
    if "list" in options:
        return list_gpus(gpus)
    if "query-gpu" in options:
        return query(host, gpus, GPU_FIELDS, options["query-gpu"], options["format"])
    if "query-compute-apps" in options:
        indices = [gpu["index"] for gpu in gpus if not gpu["error"]]
        apps = [app for app in host["apps"] if app["gpu"] in indices]
        lost = [gpu for gpu in gpus if gpu["error"]]
        return query(host, lost + apps, APP_FIELDS, options["query-compute-apps"], options["format"])
    return table(host, gpus)


def parse(argv: list[str]) -> tuple[dict[str, str], str]:
    """The options by name, and what is wrong with them."""
    options: dict[str, str] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        key, equals, value = word.partition("=")
        if word in ("-L", "--list-gpus"):
            options["list"] = ""
        elif key in ("-i", "--id", "--query-gpu", "--query-compute-apps", "--format"):
            if not equals:
                value = words.pop(0) if words else ""
            options["id" if key == "-i" else key.lstrip("-")] = value
        else:
            return {}, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"
    queries = [name for name in ("query-gpu", "query-compute-apps") if name in options]
    formats = options.get("format", "").split(",")
    if len(queries) > 1 or (queries and "csv" not in formats) or (formats != [""] and not queries):
        return {}, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"
    if not set(formats) <= {"", "csv", "noheader", "nounits"}:
        return {}, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"
    return options, ""


def selected(host: Json, wanted: str | None) -> tuple[list[Json], str]:
    """The GPUs that ``-i`` names (by index, UUID or bus id), all without it."""
    if wanted is None:
        return host["gpus"], ""
    chosen: list[Json] = []
    for word in wanted.split(","):
        found = [gpu for gpu in host["gpus"] if word in (str(gpu["index"]), gpu["uuid"], gpu["bus_id"])]
        if not found:
            return [], "No devices were found"
        chosen += found
    return chosen, ""


def no_handle(gpu: Json) -> int:
    """The line for a GPU that does not answer, and the exit status that comes with it."""
    error = gpu["error"]
    print(NO_HANDLE.format(gpu["bus_id"][4:], error + HINTS.get(error, "")))
    return GPU_IS_LOST if error == "GPU is lost" else UNKNOWN_ERROR


def list_gpus(gpus: list[Json]) -> int:
    """Answer ``nvidia-smi -L``."""
    status = 0
    for gpu in gpus:
        if gpu["error"]:
            status = no_handle(gpu)
        else:
            print(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
    return status


def query(host: Json, rows: list[Json], known: dict[str, Field], wanted: str, form: str) -> int:
    """Answer a ``--query-…`` in CSV."""
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in known or name in host.get("unknown_fields", ()):
            print(f'Field "{name}" is not a valid field to query.\n')
            return BAD_ARGUMENT
    fields = [known[name] for name in names]
    formats = form.split(",")
    plain = "nounits" in formats
    if "noheader" not in formats:
        print(", ".join(f"{name} [{unit}]" if unit else name for name, unit, _ in fields))
    status = 0
    for row in rows:
        if row.get("error"):
            status = no_handle(row)
            if known is GPU_FIELDS:
                print(", ".join(f"[{row['error']}]" for _ in fields))
            continue
        cells = [(cell_of(host, name, row), unit) for name, (_, unit, _) in zip(names, fields)]
        shown = [f"{cell} {unit}" if unit and not plain and cell != ABSENT else cell for cell, unit in cells]
        print(", ".join(shown))
    return status


def cell_of(host: Json, name: str, row: Json) -> str:
    """A field's value; in the host's language, where it has one, ``[N/A]`` where its driver does not tell it."""
    fields = GPU_FIELDS if "memory_total" in row else APP_FIELDS
    if name in host.get("not_told", ()):
        return ABSENT
    value = fields[name][2](host, row)
    language: dict[str, str] = host.get("language", {})
    text = language.get(str(value), str(value))
    return text.replace(".", language.get("decimal", ".")) if name.startswith("power.") else text


def versions(host: Json) -> int:
    """Answer ``nvidia-smi --version``."""
    cuda, version = host["cuda_version"], host["driver_version"]
    names = ("NVIDIA-SMI version", "NVML version", "DRIVER version", "CUDA Version")
    for name, value in zip(names, (version, version.rpartition(".")[0], version, cuda)):
        print(f"{host.get('language', {}).get(name, name):<20}: {value}")
    return 0


def topology(host: Json, words: list[str]) -> int:
    """Answer ``nvidia-smi topo -m`` and ``topo -p2p r``: two root complexes of four GPUs, no NVLink."""
    peers = words == ["-p2p", "r"]
    if not peers and words != ["-m"]:
        print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
        return BAD_ARGUMENT
    count = len(host["gpus"])
    names = [f"GPU{index}" for index in range(count)]
    tail = [] if peers else ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    lead, self_cell = (" ", "X") if peers else ("", " X ")
    print(lead + "\t\x1b[4m" + "\t".join([*names, *tail]) + "\x1b[0m")
    for row in range(count):
        cells = [self_cell if row == column else link(host, row, column, peers) for column in range(count)]
        node = row // 4
        print(
            lead
            + "\t".join(
                [
                    names[row],
                    *cells,
                    *([] if peers else [f"{node * 96}-{node * 96 + 95}", str(node), "\tN/A"]),
                ]
            )
        )
    print("\nLegend:\n\n  X    = Self")
    return 0


def link(host: Json, one: int, other: int, peers: bool) -> str:
    """A cell between two GPUs."""
    if peers:
        return str(host.get("peer", "OK"))
    return "NODE" if one // 4 == other // 4 else "SYS"


def table(host: Json, gpus: list[Json]) -> int:
    """Answer a plain ``nvidia-smi``."""
    lost = [gpu for gpu in gpus if gpu["error"]]
    if lost:
        return [no_handle(gpu) for gpu in lost][-1]
    version, cuda = host["driver_version"], host["cuda_version"]
    print(time.strftime("%a %b %d %H:%M:%S %Y       "))
    print("+" + "-" * 89 + "+")
    label = host.get("language", {}).get("CUDA Version", "CUDA Version")
    print(f"| NVIDIA-SMI {version:<22} Driver Version: {version:<14} {label}: {cuda:<9}|")
    print(RULE)
    print("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
    print("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |")
    print("|                                         |                        |               MIG M. |")
    print("|=========================================+========================+======================|")
    for gpu in gpus:
        memory = f"{gpu['memory_used']}MiB / {gpu['memory_total']:>6}MiB"
        power = f"{gpu['power']:.0f}W / {gpu['power_limit']:>4.0f}W"
        print(f"|{gpu['index']:>4}  {shortened(gpu['name']):<31}On  |   {gpu['bus_id']} Off |{0:>21} |")
        print(
            f"| N/A  {gpu['temperature']:>3}C    {gpu['pstate']}  {power:>22} |{memory:>23} |"
            f"{gpu['utilization']:>7}%      Default |"
        )
        print(f"|{'':41}|{'':24}|{'Disabled':>21} |")
        print(RULE)
    print()
    print_processes(host, gpus)
    return 0


def print_processes(host: Json, gpus: list[Json]) -> None:
    """The lower half of a plain ``nvidia-smi``."""
    indices = [gpu["index"] for gpu in gpus]
    print("+" + "-" * 89 + "+")
    print(f"| {'Processes:':<88}|")
    print("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |")
    print("|        ID   ID                                                               Usage      |")
    print("|" + "=" * 89 + "|")
    apps = [app for app in host["apps"] if app["gpu"] in indices]
    for app in apps:
        memory = f"{app['memory']}MiB"
        print(
            f"|{app['gpu']:>5}   N/A  N/A {app['pid']:>16}      C   "
            f"{shortened(app['name'], 37):<37}{memory:>10} |"
        )
    if not apps:
        print(f"|  {'No running processes found':<87}|")
    print("+" + "-" * 89 + "+")


def shortened(text: str, width: int = 25) -> str:
    """The text cut to a column's width, marked with dots as nvidia-smi does."""
    return text if len(text) <= width else text[: width - 3] + "..."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
