"""A year of flights, with crashes, reruns and races."""
