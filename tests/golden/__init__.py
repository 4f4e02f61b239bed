"""Journals of earlier releases: every later version folds them to the same state."""
