"""Rollouts: plan, deploy, swap, rollback, history."""
