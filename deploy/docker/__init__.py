"""Helpers for building the image."""
