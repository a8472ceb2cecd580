"""The columns of a table: fields and their ids, types of Arrow and Spark, values, partitions.
[SC1]"""
