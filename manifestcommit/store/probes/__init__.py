"""Probes of a store: which of the required operations it supports. [ST1]"""
