"""Checks that take too long for each change, and the page that says when each was run, on which code and how it ended.

`python -m tests.proof` lists them, `python -m tests.proof seeds mutants` runs two of them and writes their rows of
docs/proof.md. A check runs on a commit: nothing may be changed and not committed.
"""
