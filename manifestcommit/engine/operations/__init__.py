"""Changes of a table that write no rows of their own: schema, tags, rewinds, rollbacks, row
changes. [CF13]"""
