"""Lets Spark discover the `konverse` format by itself (Spark looks for modules named `pyspark_*`)."""

from __future__ import annotations

from konverse.spark.source import KonverseDataSource as DefaultSource

__all__ = ["DefaultSource"]
