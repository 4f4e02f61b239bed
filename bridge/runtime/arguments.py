"""Checks the arguments of public calls against their annotations, before a call does anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import cache, wraps
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Final, ParamSpec, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, SkipValidation, ValidationError, validate_call

from konverse.schemas.errors import BadInput

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

Seconds = Annotated[float, Field(ge=0)]
"""Longest wait of a public call, in seconds; 0 or more."""

Timeout = Annotated[float, SkipValidation]
"""Seconds of a timer or a lifetime. `schemas.timeouts` checks them, however they are given."""

Body = Annotated[bytes, SkipValidation]
"""A message body. `schemas.wire.bodies` checks it, however it is sent."""

Count = Annotated[int, Field(ge=1)]
"""A number of items; 1 or more."""

Partitions = Annotated[Sequence[int], BeforeValidator(lambda given: [*given] if isinstance(given, range) else given)]
"""Numbers of partitions. Also takes a `range`, which pydantic in strict mode does not accept as a sequence."""

_STRICT: Final = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
_SHOWN_CHARACTERS: Final = 60

_NAMED: Final = {
    "bool_type": "True or False",
    "bytes_type": "bytes",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "missing": "all of its values",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "string_type": "a str",
    "timedelta_type": "a timedelta",
    "tuple_type": "a pair",
    "uuid_type": "a UUID",
}
"""pydantic's error type -> the kind of value that the caller should have given."""


def checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Raise BadInput for an argument whose type differs from the annotation.

    The check costs some microseconds, so calls that are made once per message are not checked.

    The function runs after the check and not within it. When a program ends, Python ends each daemon thread that asks
    for the interpreter lock by unwinding the thread's stack. A frame of pydantic's Rust code there aborts the process.
    """

    @cache  # made at the first call: making the checks of all methods takes a tenth of the package's import time
    def check() -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        return validate_call(config=_STRICT)(accept)

    @wraps(function)
    def accept(*arguments: Any, **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return arguments, options

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        try:
            accepted, accepted_options = check()(*arguments, **options)
        except ValidationError as error:
            raise BadInput(_reason(function.__name__, list(signature(function).parameters), error)) from None
        return function(*accepted, **accepted_options)

    return call


def _reason(function: str, names: list[str], error: ValidationError) -> str:
    first = error.errors()[0]
    kind, place = first["type"], first["loc"][0] if first["loc"] else ""
    name = names[place] if isinstance(place, int) and place < len(names) else place
    if kind == "unexpected_keyword_argument":
        return f"{function} takes no argument {name!r}{did_you_mean(str(name), names)}"
    if kind == "unexpected_positional_argument":
        taken = ", ".join(name for name in names if name != "self")
        return f"{function} takes fewer positional arguments; its arguments are {taken}"
    if kind.startswith("missing"):
        how = f"; write {name}=…" if kind == "missing_keyword_only_argument" else ""
        return f"{function} needs the argument {name!r}{how}"
    # A union fails once per alternative. The alternative that pydantic followed deepest is nearest to the given value.
    faults = [fault for fault in error.errors() if fault["loc"][:1] == first["loc"][:1]]
    nearest = [fault for fault in faults if len(fault["loc"]) == max(len(fault["loc"]) for fault in faults)]
    wanted = " or ".join(dict.fromkeys(map(_fault_of, nearest))).replace(" or give ", " or ")
    return f"{function}: argument {name!r}: {wanted}, not {repr(nearest[0]['input'])[:_SHOWN_CHARACTERS]}"


def _fault_of(error: ErrorDetails) -> str:
    """A fault found by pydantic, as the text of our own check or as the kind of value to give."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "is_instance_of":
        return f"give {_a_kind_of(str(error['ctx']['class']), error['loc'])}"
    if error["type"] == "sequence_str":
        return f"give {_a_kind_of('Sequence', error['loc'])}"
    named = _NAMED.get(error["type"])
    return f"give {named}" if named is not None else error["msg"]


def _a_kind_of(name: str, place: tuple[int | str, ...]) -> str:
    if name == "Sequence":
        return "a sequence of pairs" if "tuple[" in str(place[-1]) else "a sequence"
    return f"a value of type {name}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: suggests the most similar known name; empty when none is similar."""
    like = get_close_matches(name, list(known), n=1)
    return f"; did you mean {like[0]!r}?" if like else ""
