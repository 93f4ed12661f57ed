"""The Triton kernels against torch, on CPU tensors, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("kernel_cases.py")


def test_the_kernels_say_what_torch_says() -> None:
    """Whether a kernel is compiled or interpreted is said before Triton is imported, for all of a process."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(
        argv, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
