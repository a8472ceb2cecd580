"""The release, in one place."""

__version__ = "0.1.0"
WRITER = f"manifestcommit {__version__}"  # what objects say of who wrote them
