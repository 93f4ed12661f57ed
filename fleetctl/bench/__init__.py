"""Benchmarks of running services."""
