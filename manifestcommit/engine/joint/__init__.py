"""Several tables at once: one commit of all, and consistent reads. [MT1] [MT12]"""
