"""Whole programs that use the library."""
