"""Environments made, derived, proved and removed."""
