"""Tables of other formats, as lists of files that `adopt` makes a table of. [AF4]

Internal: use `adopt(path, from_=…)`.
"""
