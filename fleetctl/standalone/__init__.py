"""OpenAI-compatible server without SGLang (the `wrapper` engine)."""

import os

# Read by OpenMP when torch is imported. A waiting thread that spins takes the processor from the one it waits
# for as soon as anything else runs: on two busy processors a pass then takes five to ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
