"""The bytes of every metadata object, and the checks of bytes that were read. [OB1] [OB4]"""
