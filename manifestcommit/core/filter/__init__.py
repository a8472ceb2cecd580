"""Conditions on rows, and file pruning: which files may hold a matching row. [RD7]"""
