"""PKG: distributions that are missing, of a version that does not fit, or not as they were installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleetctl.doctor.finding import Remedy, Severity
from fleetctl.doctor.known import text
from fleetctl.doctor.rule import Context, Found, rule
from fleetctl.doctor.stack import (
    KERNELS,
    asks,
    engine,
    first,
    lacking,
    of_sglang,
    older,
    pinned,
    required,
    satisfied,
    titled,
    view,
)
from fleetctl.doctor.toolkit import variable
from fleetctl.environment.closure import Unmet
from fleetctl.environment.stacks import mixed_pairs
from fleetctl.environment.view import View

SOUNDFILE = "0.13.1"
GRAMMAR_SKIPS = "0.5.11"
# What sglang's launcher imports whatever it serves (its modules' own import lines, 0.5.11).
IMPORTED = frozenset(
    [
        *(
            "torch",
            "transformers",
            "numpy",
            "pyzmq",
            "fastapi",
            "uvicorn",
            "uvloop",
            "orjson",
            "pydantic",
            "requests",
        ),
        *(
            "psutil",
            "pillow",
            "triton",
            "setproctitle",
            "msgspec",
            "safetensors",
            "tokenizers",
            "huggingface-hub",
        ),
        *("aiohttp", "sglang-kernel", "sgl-kernel"),
    ]
)
# What transformers checks the versions of when it is imported (its dependency_versions_check.py).
CHECKED = frozenset(
    [
        *("tqdm", "regex", "requests", "packaging", "filelock", "numpy", "tokenizers", "huggingface-hub"),
        *("safetensors", "accelerate", "pyyaml"),
    ]
)
OWN_RULES = frozenset(["soundfile", "xgrammar", "flashinfer-cubin"])


@rule(
    "pkg-engine",
    "error",
    reason="A service's engine must be in the environment that its unit names.",
    source="seen on the first hosts: a host with no SGLang at all",
)
def engine_missing(context: Context) -> Iterator[Found]:
    here, service = view(context), context.service
    if here is None or service is None or service.engine != "sglang" or "sglang" in here.versions:
        return
    remedy = Remedy("install sglang there, or name an environment that has it", packages=("sglang",))
    yield Found(
        f"the service {service.name} is of sglang, which is not in {here.path}", here.path, (), remedy
    )


@rule(
    "pkg-soundfile",
    "error",
    reason="SGLang's server imports soundfile at its start, whatever it serves.",
    source="sglang 0.5.11, entrypoints/openai/streaming_asr.py:5; read in the released wheels; seen on the first hosts",
)
def soundfile(context: Context) -> Iterator[Found]:
    here = of_sglang(context)
    if here is None or "soundfile" in here.versions or _is_inherited(here, "soundfile"):
        return
    if required(here, "sglang", "soundfile") is None and older(here.versions["sglang"], "0.5.9"):
        return
    pin = pinned(here, "soundfile", SOUNDFILE)
    what = f"soundfile is missing; sglang {here.versions['sglang']} imports it when it starts"
    remedy = Remedy(f"add {pin} to the environment (its wheel brings libsndfile)", packages=(pin,))
    yield Found(
        what, "sglang/srt/entrypoints/openai/streaming_asr.py", asks(here, "sglang", "soundfile"), remedy
    )


@rule(
    "pkg-structural-tag",
    "error",
    reason="SGLang's grammar backend imports StructuralTag of xgrammar, which older ones do not have.",
    source="sglang 0.5.11, constrained/xgrammar_backend.py:22; xgrammar 0.1.10 and 0.1.32; seen on the first hosts",
)
def structural_tag(context: Context) -> Iterator[Found]:
    here = of_sglang(context)
    found = lacking(here, "xgrammar") if here else None
    backend = text(context.service, "grammar-backend") if context.service else ""
    if here is None or found is None or backend not in ("", "xgrammar"):
        return
    version, pin = found
    what = f"xgrammar {version} has no StructuralTag, which sglang {here.versions['sglang']} imports"
    skips = not older(GRAMMAR_SKIPS, here.versions["sglang"])
    words = f"{pin}, or --grammar-backend none (no structured answers)" if skips else pin
    arguments = {"grammar-backend": "none"} if skips else {}
    evidence = [f"xgrammar {version} is there", *asks(here, "sglang", "xgrammar")]
    yield Found(what, "xgrammar", evidence, Remedy(words, arguments=arguments, packages=(pin,)))


@rule(
    "pkg-cubin-version",
    "error",
    reason="flashinfer compares its version with those of its cubin and jit-cache packages when it is imported, and "
    "stops where they differ.",
    source="Export-Deploy#679, vllm#49804; flashinfer's __init__; read in the released wheels",
)
def cubin(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None or variable(context, "FLASHINFER_DISABLE_VERSION_CHECK") == "1":
        return
    for pair, one, other in mixed_pairs(here.versions):
        what = f"{pair.one} {one} stands beside {pair.other} {other}: they must be of one version"
        wanted = pinned(here, pair.one, one)
        version = wanted.partition("==")[2]
        pins = tuple(
            f"{name}=={version}"
            for name in (pair.one, pair.other)
            if here.versions[name].partition("+")[0] != version
        )
        remedy = Remedy(
            f"the same version of both: {', '.join(pins)} (where there is none, remove {pair.other}: it only saves "
            "compiling)",
            packages=pins,
        )
        yield Found(what, pair.other, [f"{pair.one} {one}", f"{pair.other} {other}"], remedy)


@rule(
    "pkg-kernel-version",
    "error",
    reason="SGLang stops at its start where its kernel package, or flashinfer as the attention backend, is older than "
    "it asks for.",
    source="sglang 0.5.11, entrypoints/engine.py (assert_pkg_version)",
)
def kernel_version(context: Context) -> Iterator[Found]:
    here = of_sglang(context)
    if here is None or variable(context, "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK").lower() in ("1", "true"):
        return
    service = context.service
    names = [*KERNELS]
    if service is not None and text(service, "attention-backend") == "flashinfer":
        names.append("flashinfer-python")
    for name in names:
        wanted = pinned(here, name).partition("==")[2]
        if required(here, "sglang", name) is not None and older(here.versions.get(name), wanted or "0"):
            pin = f"{name}=={wanted}"
            what = f"{titled(here, name)} is older than sglang {here.versions['sglang']} accepts ({wanted})"
            yield Found(what, name, asks(here, "sglang", name), Remedy(pin, packages=(pin,)))


@rule(
    "pkg-pins",
    "warning",
    reason="An engine is released and tested with the versions that it pins.",
    source="the engine's and torch's own Requires-Dist",
)
def pins(context: Context) -> Iterator[Found]:
    here = view(context)
    using = engine(context, here) if here else None
    if here is None:
        return
    for who in filter(None, (using, "torch")):
        lines = [one for one in _unmet(here, [who]) if one.there and one.wants not in OWN_RULES]
        if lines and who in here.versions:
            asked = tuple(pin for one in lines if (pin := _as_pin(one)))
            what = f"{titled(here, who)} pins other versions: {first([_in_words(one) for one in lines])}"
            remedy = Remedy(f"install {first(asked or [one.asks for one in lines], 8)}", packages=asked)
            yield Found(what, who, [_in_words(one) for one in lines], remedy)


@rule(
    "pkg-missing-requirement",
    "warning",
    reason="What an engine requires and does not find fails when it is first imported, at the start or at a request.",
    source="the engine's own Requires-Dist",
)
def missing_requirement(context: Context) -> Iterator[Found]:
    here = view(context)
    using = engine(context, here) if here else None
    if here is None or using is None:
        return
    lost = [one for one in _unmet(here, [using]) if one.there is None and one.wants not in OWN_RULES]
    if any(name in here.versions for name in KERNELS):
        lost = [one for one in lost if one.wants not in KERNELS]
    for severity, some in (
        ("error", [one for one in lost if one.wants in IMPORTED]),
        ("info", [one for one in lost if one.wants not in IMPORTED]),
    ):
        if some:
            asked = tuple(dict.fromkeys(one.asks for one in some))
            what = f"{titled(here, using)} requires {first(asked)}, which {'is' if len(asked) == 1 else 'are'} not here"
            kept: Severity = "error" if severity == "error" else "info"
            yield Found(what, using, asked, Remedy(f"install {first(asked, 8)}", packages=asked), kept)


@rule(
    "pkg-transformers-check",
    "error",
    reason="transformers checks the versions of a few of its requirements when it is imported, and stops.",
    source="transformers, dependency_versions_check.py (is required for a normal functioning of this module)",
)
def transformers_check(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None or "transformers" not in here.versions:
        return
    for one in _unmet(here, ["transformers"]):
        if one.wants in CHECKED and (one.there or one.wants != "accelerate"):
            what = f"transformers {here.versions['transformers']} requires {one.asks}, {_there(one)}"
            remedy = Remedy(f"install {one.asks}", packages=(one.asks,))
            yield Found(what, one.wants, (), remedy)


@rule(
    "pkg-torchvision",
    "error",
    reason="torchvision registers its operators with the torch that it was built for (torchvision::nms does not "
    "exist).",
    source="torchvision's and torchaudio's Requires-Dist; vision#8985; transformers imports torchvision",
)
def torchvision(context: Context) -> Iterator[Found]:
    here = view(context)
    if here is None or not here.torch:
        return
    for name in ("torchvision", "torchaudio"):
        if name in here.versions and satisfied(here, name, "torch") is False:
            wanted = required(here, name, "torch")
            what = f"{titled(here, name)} is built for {wanted}, here is torch {here.torch}"
            remedy = Remedy(f"the {name} of this torch, from the same index and CUDA tag")
            yield Found(what, name, (), remedy, "error" if name == "torchvision" else "warning")


def _is_inherited(here: View, name: str) -> bool:
    return any(one.get("name") == name for one in here.bom.get("inherited") or ())


def _unmet(here: View, who: Iterable[str]) -> list[Unmet]:
    names = set(who)
    return [one for one in here.unmet if one.who in names]


def _in_words(one: Unmet) -> str:
    return f"{one.asks}, {_there(one)}"


def _there(one: Unmet) -> str:
    return f"{one.there} is here" if one.there else "which is not here"


def _as_pin(one: Unmet) -> str:
    return one.asks if "==" in one.asks else ""
