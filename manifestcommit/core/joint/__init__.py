"""The rules of joint commits: one commit of several tables, which one of them decides. [MT1]"""
