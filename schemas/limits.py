"""Every bound of the product, with its reason. Units stand last in the names."""

from __future__ import annotations

from typing import Final
