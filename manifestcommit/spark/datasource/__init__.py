"""The data source `manifestcommit` for batches and streams. [SP5]"""
