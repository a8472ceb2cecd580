"""Writes data files in tasks, and collects the results in the driver. [SP1]"""
