"""A year of flights, with crashes, reruns and races.

Internal: use `python -m manifestcommit.demo`.
"""
