"""The rules of commits: what a commit changes, what it conflicts with, and which objects garbage
collection may delete. [CM10] [CF1]"""
