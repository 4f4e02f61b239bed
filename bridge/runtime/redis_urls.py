"""URLs of Redis: checked before they are used, and shown without what may be a password."""

from __future__ import annotations

import re
from typing import Final

import redis
from redis.connection import URL_QUERY_ARGUMENT_PARSERS

_OPTION: Final = re.compile(r"(?<=[?&#])[^?&#]+")
_OPEN_OPTION: Final = re.compile(rf"(?:{'|'.join(URL_QUERY_ARGUMENT_PARSERS)})=[\w.-]*")
"""Numbers and switches; any other option may be a password whose name was misspelt."""
_PORT: Final = re.compile(
    r"\A((?:.*@|\w[\w+.-]*://)?+(?:\[[\da-f:.]*\]|[^:/?#]|:\d*(?=[,/?#]|\Z))*+):.*", re.DOTALL | re.IGNORECASE
)
"""From a port that is no number: it may be a password behind which the host was forgotten."""
_USER: Final = re.compile(r"\A((?:\w[\w+.-]*://)?+[^:]*):.*(?=@)", re.DOTALL)
"""Up to the last @: a password that is not percent-encoded may hold any sign. The scheme may have been forgotten."""


def masked(url: str) -> str:
    """The URL of a server, with or without its scheme, without what may be a password."""
    return _OPTION.sub(_masked_option, _PORT.sub(r"\1:***", _USER.sub(r"\1:***", url, count=1), count=1))


def _masked_option(option: re.Match[str]) -> str:
    if _OPEN_OPTION.fullmatch(option[0]):
        return option[0]
    name, equals, _value = option[0].partition("=")
    return f"{name}=***" if equals else "***"


def check_options(url: str) -> None:
    """Raise ValueError for an option of the URL that the client does not know, or whose value it cannot read."""
    try:
        with redis.Redis.from_url(url) as client:
            client.connection_pool.make_connection()  # it connects later
    except TypeError as error:
        unknown = re.search(r"'[^']+'", str(error))
        raise ValueError(f"has the option {unknown[0] if unknown else '?'}, which redis-py does not know") from None
    except redis.RedisError:  # its text may show the value
        raise ValueError("has an option with a value that redis-py does not know") from None
