"""The bill of materials that an environment will have once distributions of another are laid over it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fleetctl.environment.view import Entry, View


def resulting(
    base: View, source: View, take: Collection[str], remove: Collection[str] = (), paths: Collection[str] = ()
) -> Mapping[str, Any]:
    """``base`` with the distributions ``take`` of ``source``, without ``remove`` and the folders ``paths``.

    As far as two BOMs tell: which libraries are given and which are missing is worked out, symbols are not.
    """
    gone = {*take, *remove}
    kept = [entry for entry in base.bom["distributions"] if entry["name"] not in gone]
    came = [source.distributions[name] for name in take]
    extensions = [
        *(
            one
            for one in base.extensions
            if base.owner(one) not in gone and not _under(base, one["path"], paths)
        ),
        *(_placed(source, base, one) for one in source.extensions if source.owner(one) in take),
    ]
    draft = {
        **base.bom,
        "distributions": sorted([*kept, *came], key=lambda entry: str(entry["name"])),
        "extensions": extensions,
        "unowned": _unowned(base, paths),
        "unmet_imports": None,
        "twice": [entry for entry in base.bom.get("twice", ()) if entry["name"] not in gone],
    }
    given = View(draft).sonames
    draft["extensions"] = [
        {**one, "missing": sorted(_missing(one, base, source, given))} for one in extensions
    ]
    return {**draft, "abi": _abi(base, source, take, draft["extensions"])}


def _placed(source: View, base: View, extension: Entry) -> Entry:
    """An extension of ``source`` where it will be in ``base``, whose site-packages may be of another name."""
    folders = base.bom.get("site_packages", [])
    inside = source.inside(extension["path"])
    moved = folders and inside != extension["path"]
    return {**extension, "path": f"{folders[0]}/{inside}" if moved else extension["path"]}


def _missing(extension: Entry, base: View, source: View, given: Mapping[str, str]) -> Iterator[str]:
    """What nobody gave before and nobody does now, and what was given by a distribution that is not there any more."""
    yield from (name for name in extension.get("missing", ()) if name not in given)
    known = {*given, *extension.get("missing", ())}
    for name in extension["needed"]:
        if name not in known and (name in base.sonames or name in source.sonames):
            yield name


def _under(view: View, path: str, folders: Collection[str]) -> bool:
    return view.inside(path).startswith(tuple(f"{view.inside(folder)}/" for folder in folders))


def _unowned(base: View, paths: Collection[str]) -> Mapping[str, Any]:
    unowned = base.bom.get("unowned") or {"count": 0, "bytes": 0, "files": [], "packages": []}
    files = [name for name in unowned["files"] if not _under(base, name, paths)]
    packages = [name for name in unowned["packages"] if not _under(base, f"{name}/", paths)]
    count = unowned["count"] - (len(unowned["files"]) - len(files))
    return {**unowned, "count": count, "files": files, "packages": packages}


def _abi(base: View, source: View, take: Collection[str], extensions: list[Entry]) -> Mapping[str, Any]:
    torch = source if "torch" in take else base
    majors: dict[str, list[str]] = {}
    for one in extensions:
        if one.get("cuda"):
            majors.setdefault(str(one["cuda"]), []).append(one["path"])
    said = torch.bom.get("abi", {})
    return {"tag": said.get("tag"), "torch": torch.torch, "cuda": majors, "cxx11": said.get("cxx11")}
