"""Files on local and mounted file systems. [ST5]"""
