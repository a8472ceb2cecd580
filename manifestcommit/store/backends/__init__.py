"""Object stores: S3, Google Cloud Storage, Azure, and any other through fsspec. [ST1]"""
