"""Playbooks: fleetctl's own verbs, one after the other."""
