"""`python -m tests.proof.importing FILE`: import a test file, so that the files that it loads become known."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    importlib.import_module(sys.argv[1].removesuffix(".py").replace("/", "."))
