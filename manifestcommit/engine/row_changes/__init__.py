"""Changes of single rows, by rewriting files: one set of rules, and what evaluates them in this
process."""
