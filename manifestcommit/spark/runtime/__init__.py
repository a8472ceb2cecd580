"""Shared by all of Spark's parts: options for tasks, digests of Python code, errors of tasks."""
