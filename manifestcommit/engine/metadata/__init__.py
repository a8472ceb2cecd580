"""Reads and writes versions, manifests and records. [RD1] [CM3]"""
