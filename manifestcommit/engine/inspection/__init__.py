"""Describes a table and checks that it is sound, without changing anything."""
