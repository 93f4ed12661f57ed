"""Measurements of DDTree in a real SGLang 0.5.11 with the patch set, on one GPU; standard library only."""
