"""How torch's threads wait is set before torch reads it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.standalone.conftest import ROOT

ORDER = """
import importlib, os, sys
importlib.import_module(sys.argv[1])
loaded = list(sys.modules)
after = "torch" not in loaded or loaded.index("fleetctl.standalone") < loaded.index("torch")
print(os.environ["OMP_WAIT_POLICY"], after)
"""


def imported(module: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", ORDER, module],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module", ["fleetctl.standalone.__main__", "fleetctl.standalone.loading", "benchmarks.modes"]
)
def test_waiting_threads_sleep_and_torch_is_imported_after_that_is_set(module: str) -> None:
    assert imported(module) == "PASSIVE True"


def test_a_policy_that_is_given_stays() -> None:
    assert imported("fleetctl.standalone", OMP_WAIT_POLICY="ACTIVE") == "ACTIVE True"
