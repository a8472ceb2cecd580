"""One module per published claim; `python -m benchmarks` runs all of them. How it is measured: README.md beside this file."""
