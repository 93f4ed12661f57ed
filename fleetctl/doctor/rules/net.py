"""NET: ports that are not free, and proxies that catch a server's talk with itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fleetctl.doctor.finding import Remedy
from fleetctl.doctor.known import mapping, text
from fleetctl.doctor.rule import Context, Found, ServiceView, rule

PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
EXEMPT = ("localhost", "127.0.0.1", "0.0.0.0")
PORT = re.compile(r"--port[= ](\d+)")
RUNNING = ("active", "activating", "reloading")


@rule(
    "net-port-stranger",
    "error",
    reason="SGLang loads the whole model before it finds its port taken, and probes meanwhile reach the stranger.",
    source="seen with sglang 0.5.11 on an H200",
    remedy=Remedy("stop that process, or give the slot another port", commands=("ss -ltnp",)),
)
def stranger(context: Context) -> Iterator[Found]:
    service = context.service
    if service is None:
        return
    owner = mapping(mapping(context.facts.get("ports")).get(str(service.port)))
    if owner and owner.get("unit") not in _slot_units(context, service):
        who = f"{owner.get('command') or 'a process'} (pid {owner.get('pid')}, {owner.get('unit') or 'no unit'})"
        yield Found(f"port {service.port} is held by a stranger", f"port {service.port}", [who])


def _slot_units(context: Context, service: ServiceView) -> set[str]:
    """The units that may hold the port: the service's, what fills a slot there, and the inventory's for that port."""
    names = {service.unit}
    for slot in mapping(context.facts.get("slots")).values():
        state = mapping(mapping(slot).get("state"))
        if state.get("port") == service.port:
            names.add(str(state.get("unit")))
    units = mapping(context.facts.get("units"))
    return names | {str(name) for name, unit in units.items() if _port(unit) == service.port}


def _port(unit: object) -> int | None:
    found = PORT.search(str(mapping(unit).get("text") or ""))
    return int(found[1]) if found else None


@rule(
    "net-port-shared",
    "error",
    reason="Of two units on one port the second to start fails, and after a reboot that may be either.",
    source="seen with sglang 0.5.11 on an H200",
    remedy="disable the one that is not wanted (`systemctl disable --now UNIT`), or give it another port",
)
def shared(context: Context) -> Iterator[Found]:
    by_port: dict[int, list[str]] = {}
    for name, unit in mapping(context.facts.get("units")).items():
        known, port = mapping(unit), _port(unit)
        lasts = known.get("UnitFileState") == "enabled" or known.get("ActiveState") in RUNNING
        if port is not None and lasts:
            by_port.setdefault(port, []).append(str(name))
    for port, names in by_port.items():
        if len(names) > 1:
            what = f"{' and '.join(sorted(names))} start at boot or run on one port, {port}"
            yield Found(what, f"port {port}", [f"{name}: --port {port}" for name in sorted(names)])


@rule(
    "net-proxy-localhost",
    "error",
    reason="SGLang's warm-up asks its own address over HTTP as requests does: a proxy in the environment catches it, "
    "answers 403 or 502, and the server ends.",
    source="sglang#9814, sglang#9155: warm-up at http://0.0.0.0 through a proxy",
    remedy=Remedy("exempt the host's own addresses from the proxy"),
)
def proxy(context: Context) -> Iterator[Found]:
    service = context.service
    if service is None or service.engine == "other":
        return
    given = _environment(context, service)
    proxies = [name for name in PROXIES if given.get(name)]
    own = {*EXEMPT[:2], text(service, "host") or EXEMPT[1]}
    exempt = given.get("no_proxy") or given.get("NO_PROXY") or ""
    left = sorted(own - {part.strip() for part in exempt.split(",")})
    asked = (
        "127.0.0.1"
        if (text(service, "host") or "127.0.0.1") == "::"
        else text(service, "host") or "127.0.0.1"
    )
    if not proxies or exempt.strip() == "*" or asked not in left:
        return
    wanted = ",".join([*(part.strip() for part in exempt.split(",") if part.strip()), *left])
    remedy = Remedy(
        "exempt the host's own addresses from the proxy", variables={"no_proxy": wanted, "NO_PROXY": wanted}
    )
    seen = [*(f"{name}={_shown(given[name])}" for name in proxies), f"no_proxy={exempt}"]
    yield Found(f"{proxies[0]} catches the server's requests to {asked}", "variables", seen, remedy)


def _environment(context: Context, service: ServiceView) -> Mapping[str, str]:
    """The variables that the unit gets: the service's, over those that its file on the host sets by hand."""
    unit = str(mapping(mapping(context.facts.get("units")).get(service.unit)).get("text") or "")
    names = "|".join((*PROXIES, "no_proxy", "NO_PROXY"))
    found = re.findall(rf'^Environment="?({names})=([^"\n]*)', unit, re.MULTILINE)
    is_ours = "[X-Fleetctl]" in unit
    return {**({} if is_ours else dict(found)), **service.variables}


def _shown(value: str) -> str:
    """A proxy's address without a password in it."""
    return re.sub(r"//[^/@]*@", "//…@", value)
