"""Spark's columns and SQL text as conditions."""
