"""A year of flights, with crashes, reruns and races.

Run it from the repository's root: `python -m examples.flights`, or `make demo`.
"""
