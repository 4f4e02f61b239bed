"""The vocabulary: names, limits, errors, records and their codecs.

Pure; imports nothing of konverse outside this folder.
"""
