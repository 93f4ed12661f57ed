"""YAML inventories as typed hosts, slots and services."""
