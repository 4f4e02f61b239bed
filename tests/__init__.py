"""The tests: what is here and how to run it is in CONTRIBUTING.md."""
