"""The release, in one place.

Internal: import `__version__` from `manifestcommit`.
"""

__version__ = "0.1.0"
WRITER = f"manifestcommit {__version__}"  # what objects say of who wrote them
