"""Priority levels of conversations (service-broker.md section 8)."""

from __future__ import annotations

from typing import Final

DEFAULT_LEVEL: Final = 5
"""Level of an endpoint that no priority matches, and of a priority that names no level."""
HIGHEST: Final = 10
LOWEST: Final = 1
