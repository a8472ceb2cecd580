"""The contents of a table's version: files, manifests, watermarks, and the names of all objects."""
