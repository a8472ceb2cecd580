"""Creates the next version: optimistic concurrency, group commit, spilled manifests. [CM1]"""
