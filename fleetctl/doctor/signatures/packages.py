"""Packages: missing, of versions that do not fit, not installable."""

from __future__ import annotations

from fleetctl.doctor.signatures.signature import Signature

PINS = "the versions that the engine pins: `fleetctl env diff` against an environment that works, or install anew"

PKG = [
    Signature(
        "pkg-soundfile",
        r"No module named '?soundfile|sndfile library not found",
        "soundfile is imported at start and missing",
        "add soundfile (with its libsndfile) to the environment",
        verdict="fatal",
        packages=("soundfile",),
    ),
    Signature(
        "pkg-structural-tag",
        r"cannot import name '?StructuralTag",
        "xgrammar is older than this sglang needs",
        "xgrammar==0.1.32, or --grammar-backend none",
        verdict="fatal",
        packages=("xgrammar==0.1.32",),
        arguments={"grammar-backend": "none"},
        source="sglang PR 21722",
    ),
    Signature(
        "pkg-cubin-version",
        r"flashinfer-(?:cubin|jit-cache) version .* does not match flashinfer version",
        "flashinfer-python and flashinfer-cubin are of different versions",
        "the same version of both",
        verdict="fatal",
        source="Export-Deploy#679, vllm#49804",
    ),
    Signature(
        "pkg-namespace",
        r"cannot import name '[\w.]+' from '[\w.]+' \(unknown location\)",
        "a folder without __init__.py stands in for the package: it is not installed, or a copy shadows it",
        "install the package; remove folders of its name from the working directory and from PYTHONPATH",
    ),
    Signature(
        "pkg-circular",
        r"most likely due to a circular import",
        "a package shadows another one of its name, or is half installed",
        "look for a file or folder of that name beside the program; install the package again",
    ),
    Signature(
        "pkg-transformers",
        r"cannot import name '\w+' from 'transformers|module 'transformers[\w.]*' has no attribute"
        r"|Could not import module '\w+'\. Are this object's requirements defined correctly"
        r"|huggingface-hub>=|tokenizers>=[\w.,<=! ]+ is required",
        "transformers (or what it is used with) is of another version than this engine was written for",
        "the transformers version that this engine pins",
    ),
    Signature(
        "pkg-kernel-version",
        r"sgl-kernel is installed with version .* which is less than the minimum required"
        r"|(?:sgl-kernel|sglang-kernel|flashinfer_python|flashinfer) is (?:installed with version"
        r"|not installed)"
        r"|cannot import name '\w+' from '(?:sgl_kernel|flashinfer|vllm|sglang)[\w.]*'"
        r"|module '(?:sgl_kernel|flashinfer|deep_gemm)[\w.]*' has no attribute"
        r"|'_OpNamespace' '\w+' object has no attribute|No operator found for|Unknown (?:builtin )?op: ",
        "the kernel package or library is of another version than the engine was written for",
        PINS,
        source="sglang: several",
    ),
    Signature(
        "pkg-api-mismatch",
        r"^(?:\S+ )?ImportError: cannot import name '|^cannot import name '"
        r"|AttributeError: module '[\w.]+' has no attribute '"
        r"|AttributeError: (?:type object )?'\w*(?:Tokenizer|Processor|TokenizerFast|Mixin|Backend|Client|Dispatcher|"
        r"Cache)\w*' (?:object )?has no attribute '"
        r"|got an unexpected keyword argument '|missing \d+ required positional argument"
        r"|takes \d+ positional arguments? but \d+ (?:was|were) given",
        "two packages do not fit: one calls the other in a way that its version does not know",
        PINS,
    ),
    Signature(
        "pkg-protobuf",
        r"Descriptors can(?:not| not) be created directly|protobuf_runtime\w*\.VersionError"
        r"|VersionError: Detected (?:incompatible|mismatched) Protobuf|[Pp]rotobuf Gencode"
        r"|'MessageFactory' object has no attribute|cannot import name '\w+' from 'google\.protobuf",
        "protobuf is of another version than the code that uses it was generated for",
        "the protobuf version that the engine (or the package in the traceback) pins",
    ),
    Signature(
        "pkg-numpy-api",
        r"was removed in the NumPy 2|module 'numpy' has no attribute|[Nn]umpy.{0,40}needs NumPy|Numba needs NumPy",
        "a package uses NumPy in a way that the NumPy installed does not know any more",
        "numpy<2, or a later version of that package",
    ),
    Signature(
        "pkg-python",
        r"SyntaxError: |unsupported operand type\(s\) for \|: '(?:type|_?\w*Generic\w*|NoneType)'"
        r"|requires? Python ['\"]?[><=~ \d.]+|Requires-Python|not a supported wheel on this platform"
        r"|'type' object is not subscriptable",
        "a package was written for another Python version than the one that runs",
        "an environment with the Python version that the engine asks for",
    ),
    Signature(
        "pkg-install",
        r"ResolutionImpossible|Could not find a version that satisfies|No matching distribution found for"
        r"|No solution found when resolving|metadata-generation-failed|subprocess-exited-with-error"
        r"|Failed (?:to build|building) (?:wheel|installable|[`'\w])|pip's dependency resolver does not"
        r"|THESE PACKAGES DO NOT MATCH THE HASHES|has inconsistent version|Failed to download distributions",
        "packages could not be installed: versions that exclude each other, none for this Python or platform, or a "
        "build that failed",
        "the line below it names the package; take the engine's own pins in a fresh environment, from wheels",
    ),
    Signature(
        "pkg-pydantic",
        r"PydanticUserError|PydanticSchemaGenerationError|'FieldInfo' object has no attribute"
        r"|PydanticImportError|pydantic_core\._pydantic_core\.SchemaError|Unable to generate pydantic",
        "pydantic (or fastapi) is of another version than the code that uses it",
        PINS,
    ),
    Signature(
        "pkg-undefined-name",
        r"NameError: name '\w+' is not defined",
        "a name is used whose import failed earlier: an optional package is missing or of another version",
        "install the package that has it, in the version that the engine pins",
    ),
    Signature(
        "pkg-ray-version",
        r"Version mismatch: The cluster was started with|This process was started with Ray|Ray version mismatch",
        "hosts (or containers) of one cluster have other versions of Ray or Python",
        "the same environment on all of them",
    ),
    Signature(
        "pkg-missing-requirement",
        r"PackageNotFoundError: |DistributionNotFound: |distribution was not found and is required by"
        r"|pkg_resources\.(?:VersionConflict|ContextualVersionConflict)"
        r"|requires the [`'\"]?[\w-]+[`'\"]? (?:library|package)|[Pp]lease (?:run "
        r"|use )?[`'\"]?pip3? install"
        r"|ImportError: (?!CUDA)\w+ (?:is|are) not (?:installed|available)"
        r"|requires [`'\"]?[\w-]+[`'\"]? to be installed|(?:Error|Exception): [Pp]lease (?:install|upgrade|update) "
        r"|Unable to find required package|packages? (?:that )?(?:were|was|is|are) not found in your environment"
        r"|(?:Error|Exception): (?!CUDA)[\w`'\" .-]{2,40} (?:is|are) not installed|must be installed to use"
        r"|minimum required version|require users to upgrade torch|requires \S{3,40}(?:>=|==|~=)\d\S*,? (?:but"
        r"|found)",
        "a package that is required is not installed, or not in the version required",
        "install it in this environment",
    ),
    Signature(
        "pkg-missing-module",
        r"ModuleNotFoundError: No module named |Error while finding module specification for '"
        r"|: No module named [\w.]+$|^No module named '",
        "a module is imported that is not installed",
        "add its package to the environment; an environment that is whole can be copied with `fleetctl "
        "env overlay`",
    ),
]
