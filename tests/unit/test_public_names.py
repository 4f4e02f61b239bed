"""The names in `dir(konverse)`."""

from __future__ import annotations

import subprocess
import sys

import konverse


def test_dir_lists_the_public_names_and_all_of_them_can_be_had() -> None:
    assert dir(konverse) == sorted([*konverse.__all__, "__version__"])
    assert all(hasattr(konverse, name) for name in dir(konverse))


def test_listing_the_names_loads_none_of_their_modules() -> None:
    code = "import sys, konverse; dir(konverse); print(sorted(name for name in sys.modules if 'kafka' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # our own code
    assert done.stdout == "[]\n"
