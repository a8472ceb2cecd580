"""One unit of work from begin to commit or abort. [CM1] [AB1]"""
