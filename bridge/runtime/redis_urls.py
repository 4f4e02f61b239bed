"""Redis URLs: checks their options before use, and masks every part that may be a password."""

from __future__ import annotations

import re
from typing import Final

import redis
from redis.connection import URL_QUERY_ARGUMENT_PARSERS

_OPTION: Final = re.compile(r"(?<=[?&#])[^?&#]+")
_OPEN_OPTION: Final = re.compile(rf"(?:{'|'.join(URL_QUERY_ARGUMENT_PARSERS)})=[\w.-]*")
"""Options that are safe to show: numbers and switches. Any other may be a password under a misspelt name."""
_PORT: Final = re.compile(
    r"\A((?:.*@|\w[\w+.-]*://)?+(?:\[[\da-f:.]*\]|[^:/?#]|:\d*(?=[,/?#]|\Z))*+):.*", re.DOTALL | re.IGNORECASE
)
"""A port that is not a number, and everything after it: this may be a password in a URL without a host."""
_USER: Final = re.compile(r"\A((?:\w[\w+.-]*://)?+)(?:([^:]*):.*|[^:@/]+)(?=@)", re.DOTALL)
"""User and password up to the last @: an unencoded password may contain any character. The scheme may be missing.
Without a colon the part before the @ may be a password in place of the user."""


def masked(url: str) -> str:
    """The URL of a server, with or without a scheme, with `***` in place of every possible password."""
    return _OPTION.sub(_masked_option, _PORT.sub(r"\1:***", _USER.sub(_masked_user, url, count=1), count=1))


def _masked_user(found: re.Match[str]) -> str:
    return f"{found[1]}***" if found[2] is None else f"{found[1]}{found[2]}:***"


def _masked_option(option: re.Match[str]) -> str:
    if _OPEN_OPTION.fullmatch(option[0]):
        return option[0]
    name, equals, _value = option[0].partition("=")
    return f"{name}=***" if equals else "***"


def check_options(url: str) -> None:
    """Raise ValueError for an option of the URL that redis-py does not know, or whose value it cannot parse."""
    try:
        with redis.Redis.from_url(url) as client:
            client.connection_pool.make_connection()  # parses the options without connecting
    except TypeError as error:
        unknown = re.search(r"'[^']+'", str(error))
        raise ValueError(f"has the option {unknown[0] if unknown else '?'}, which redis-py does not know") from None
    except redis.RedisError:  # the error text may contain the value, perhaps a password
        raise ValueError("has an option with a value that redis-py cannot parse") from None
