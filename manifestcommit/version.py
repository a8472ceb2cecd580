"""The release, and how it is installed, in one place.

Internal: import `__version__` from `manifestcommit`.
"""

__version__ = "0.1.0"
WRITER = f"manifestcommit {__version__}"  # what objects say of who wrote them


def install(extra: str) -> str:
    """How an extra is installed, for errors: no index has the package, a clone has."""
    return f"pip install '.[{extra}]' in a clone of the repository"
