"""Where fleetctl's things are on a host, and the files that say what a folder is."""

from __future__ import annotations

ROOT = "/var/lib/fleetctl"
ENVS = f"{ROOT}/envs"
INCOMING = f"{ROOT}/incoming"
ROLLOUTS = f"{ROOT}/rollouts"
SECRETS = f"{ROOT}/secrets"
SLOTS = f"{ROOT}/slots"
WHEELHOUSE = f"{ROOT}/wheelhouse"
ROLLOUT_UNITS = "fleetctl-rollout-"
VACANT_UNITS = "fleetctl-vacant-"
LOCKS = "/run/fleetctl"
MARKER = ".fleetctl-env.json"
MODEL_MARKER = ".fleetctl-model.json"
