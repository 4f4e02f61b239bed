"""Patterns of conversations, a program each; the tests run every one of them."""
