"""Plans reads: which files a read needs, and their rows. [RD6]"""
