"""How much hypothesis tries: the same examples in every run of CI, other ones each time at home."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

set_hypothesis_home_dir(Path(__file__).resolve().parents[2] / ".cache" / "hypothesis")

_COMMON = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", _COMMON, derandomize=True, database=None)
settings.register_profile("home", _COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "home")
