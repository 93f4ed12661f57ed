"""Lines of healthy starts that look like faults."""

from __future__ import annotations

from fleetctl.doctor.signatures.signature import Signature

HARMLESS = [
    Signature(id, pattern, reason, "", "harmless")
    for id, pattern, reason in (
        ("ok-import", r"Ignore import error when loading", "an optional model is skipped"),
        (
            "ok-warning",
            r"(?:Deprecation|Future|Runtime|Syntax)Warning: "
            r"|UserWarning: (?!CUDA initialization: (?:Found no|Unexpected|CUDA (?:unknown"
            r"|driver init)))",
            "a library's warning",
        ),
        (
            "ok-arguments",
            r"server_args=ServerArgs\(|args: Namespace\(|non-default args:",
            "the engine's arguments",
        ),
        ("ok-rlimit", r"Fail(?:ed)? to set RLIMIT", "a limit stays as it was"),
        ("ok-generation-config", r"Failed to load generation config", "defaults are used"),
        (
            "ok-nccl-plugin",
            r"NCCL INFO (?:NET/Plugin|NET/IB|TUNER/Plugin|PROFILER/Plugin|Failed)",
            "an optional plugin",
        ),
        ("ok-http-answer", r"HTTP/1\.[01]\" 4\d\d", "a request was refused"),
    )
]
