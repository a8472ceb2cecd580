"""The changes of rows from one version to another: which files each version took away and brought,
and the bag difference of their rows. [CH1]

Internal: it may change in any release.
"""
