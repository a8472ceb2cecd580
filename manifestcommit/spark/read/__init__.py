"""Reads data files in tasks, as the driver plans it. [SP4]"""
