"""Keys of text bodies, by a regular expression.

Expressions are RE2's: a search takes time in proportion to the body, whatever that contains. Python's own `re` may take
years.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from konverse.schemas.errors import InvalidSettings

from .rule import Lookup, NoKey, checked, missing

_KEY: Final = "key"
_MEMORY_BYTES_MAX: Final = 8_388_608
"""Memory of one expression. With less, RE2 is slower and finds the same."""


class RegularExpression:
    """The first match of an expression: its group `key`, else its first group, else all of it."""

    kind = "regular_expression"

    def __init__(self, pattern: str) -> None:
        """Raises InvalidSettings for a pattern that RE2 refuses, NotInstalled without google-re2."""
        try:
            import re2  # noqa: PLC0415  # it comes with an extra
        except ImportError:
            raise missing("classifiers by regular expression", "google-re2") from None
        module: Any = re2
        options = module.Options()
        options.log_errors, options.max_mem = False, _MEMORY_BYTES_MAX
        try:
            self._compiled = module.compile(pattern, options)
        except (module.error, UnicodeEncodeError) as error:  # half of a surrogate pair has no UTF-8
            reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
            raise InvalidSettings(
                f"{pattern!r} is not a valid regular expression of RE2, which has no back-references and does not "
                f"look around: {reason}"
            ) from None
        self._pattern = pattern
        self._group: str | int = _KEY if _KEY in self._compiled.groupindex else min(1, self._compiled.groups)

    def key_of(self, message: Any, _lookup: Lookup | None = None) -> str:
        """The match in the body, decoded as UTF-8."""
        body = message.body or b""
        found = self._compiled.search(body)
        if found is None:
            raise NoKey(f"Nothing in the body matches {self._pattern}.")
        key: bytes | None = found.group(self._group)
        if key is None:
            raise NoKey(f"The match of {self._pattern} has no such group.")
        try:
            return checked(key.decode())
        except UnicodeDecodeError:
            raise NoKey(f"The match of {self._pattern} is not UTF-8.") from None

    def described(self) -> Mapping[str, Any]:
        """The expression."""
        return {"pattern": self._pattern}
