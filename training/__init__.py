"""Trains and measures a DFlash drafter for SmolLM2-135M-Instruct, on text that the target wrote itself."""
