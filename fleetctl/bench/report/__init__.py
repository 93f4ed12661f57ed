"""Reports of benchmarks."""
