"""Writes data files, and inspects the Parquet files of other programs. [DF1]"""
