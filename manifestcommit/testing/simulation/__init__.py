"""Runs the engine over a simulated store, one scheduled step after another."""
