"""Packages that the Spark side needs beyond konverse itself, checked when a user first calls into it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from konverse.schemas.errors import NotInstalled

SPARK_VERSION_MIN: Final = (4, 1)
"""First version with Arrow writers for Python data sources."""


def missing(package: str) -> NotInstalled:
    """The error for a package that is not installed."""
    return NotInstalled(f"the Spark side of konverse needs {package}; install it with: pip install 'konverse[spark]'")


def require() -> None:
    """Raise NotInstalled unless pyspark 4.1 or newer, pyarrow, numpy and pandas are installed."""
    for package in ("pyspark", "pyarrow", "numpy", "pandas"):
        if find_spec(package) is None:
            raise missing(package)
    import pyspark  # noqa: PLC0415  # it may be absent, which this function checks

    require_version(pyspark.__version__)


def require_version(version: str) -> None:
    """Raise NotInstalled when `version` of pyspark is too old."""
    if version_of(version) < SPARK_VERSION_MIN:
        wanted = ".".join(map(str, SPARK_VERSION_MIN))
        raise missing(f"pyspark {wanted} or newer, not {version}")


def version_of(version: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return major, minor
