"""Checks that take too long for every change, and the page with the date, commit and result of their last run.

`python -m tests.proof` lists the checks. `python -m tests.proof seeds mutants` runs two of them and writes their rows
of
docs/proof.md. A check runs on a commit, so the working tree must be clean.
"""
