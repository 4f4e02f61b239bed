"""Checks functions that are to answer a queue: they must take one argument and do their work in the call itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Final

from konverse.schemas.errors import InvalidProcedure

_NAMED: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def check_procedure(handler: Callable[..., object]) -> None:
    """Raise InvalidProcedure unless the function takes a transaction and nothing else, and is synchronous."""
    signature = check_called_with(handler, "transaction")
    if signature is None:
        return
    given = handler.keywords if isinstance(handler, partial) else {}
    taken = [name for name, one in signature.parameters.items() if one.kind in _NAMED and name not in given]
    if len(taken) > 1:
        raise _takes_others(handler, signature, "transaction")


def check_called_with(function: Callable[..., object], argument: str) -> inspect.Signature | None:
    """Signature of a function, None if it has none to show. `argument` names its one parameter in errors.

    Raises InvalidProcedure unless the function is synchronous and can be called with one argument.
    """
    if not callable(function):
        raise InvalidProcedure(f"{function!r} cannot be called; give a function that takes a {argument}")
    if _does_nothing_yet(function) or _does_nothing_yet(type(function).__call__):  # an object has the latter
        raise InvalidProcedure(
            f"{_name(function)} is async or a generator, and calling it with a {argument} does nothing; readers are "
            "threads or processes: write a plain function"
        )
    try:
        signature = inspect.signature(function)
    except ValueError:  # a built-in function may have no signature to show
        return None
    try:
        signature.bind(object())
    except TypeError:
        raise _takes_others(function, signature, argument) from None
    return signature


def _does_nothing_yet(function: Callable[..., object]) -> bool:
    """Whether a call only makes a coroutine or a generator, in which the work would be done."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_kind(function) for is_kind in kinds)


def _takes_others(function: Callable[..., object], signature: inspect.Signature, argument: str) -> InvalidProcedure:
    return InvalidProcedure(f"{_name(function)}{signature} must take exactly one argument, the {argument}")


def _name(handler: Callable[..., object]) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
