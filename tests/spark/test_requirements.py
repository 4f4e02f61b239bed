"""Without pyspark or pyarrow, or with old versions, the error names the package to install."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import pyspark
import pytest

from konverse.schemas.errors import NotInstalled
from konverse.spark.connection import requirements
from konverse.spark.source import KonverseDataSource

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = sys.modules["pyspark.sql"] = sys.modules["pyspark.sql.datasource"] = None
try:
    import konverse.spark.source
except Exception as error:
    print(type(error).__name__, error)
"""


SESSION_WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = sys.modules["pyspark.sql"] = None
from konverse.spark.session import local_session
try:
    local_session("sales")
except Exception as error:
    print(type(error).__name__, error)
"""


VERIFIER_WITHOUT_EXTRA = """
import sys
sys.modules["pyspark"] = sys.modules["pyspark.sql"] = sys.modules["pyarrow"] = None
from konverse.spark.verifier_job import spread
try:
    spread(None)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_verifying_without_the_extra_is_refused_with_its_name() -> None:
    done = subprocess.run([sys.executable, "-c", VERIFIER_WITHOUT_EXTRA], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("NotInstalled the Spark side of konverse needs pyspark")
    assert "konverse[spark]" in done.stdout


def test_a_session_without_pyspark_is_refused_with_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", SESSION_WITHOUT_PYSPARK], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("NotInstalled the Spark side of konverse needs pyspark")
    assert "konverse[spark]" in done.stdout


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0", "5.0.0.dev1", "4.10.2"])
def test_a_new_enough_spark_is_taken(version: str) -> None:
    requirements.require_version(version)


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1"])
def test_an_old_spark_is_refused_when_the_format_is_used(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(NotInstalled, match=rf"pyspark 4.1 or newer, not {version}; .*'konverse\[spark\]'"):
        KonverseDataSource({"bootstrap": "one:9092", "topic": "orders"})


@pytest.mark.parametrize("package", ["pyarrow", "numpy", "pandas"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_it(name: str) -> ModuleSpec | None:
        return None if name == package else find_spec(name)

    monkeypatch.setattr(requirements, "find_spec", without_it)
    with pytest.raises(NotInstalled, match=rf"needs {package}; install it with: pip install 'konverse\[spark\]'"):
        requirements.require()


def test_the_format_cannot_be_imported_without_pyspark() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("NotInstalled the Spark side of konverse needs pyspark 4.1 or newer; install it with")
