"""Patterns of conversations, one program for each. The tests run all of them."""
