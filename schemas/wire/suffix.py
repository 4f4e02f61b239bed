"""The end of an envelope (message type, home, Begin block, detail) in its Avro form, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from konverse.schemas.identifiers import Address

from .records import (
    Bounce,
    BounceId,
    BounceReason,
    Closed,
    Decision,
    Detail,
    End,
    FinAnswer,
    Forwarded,
    Notice,
    NoticeReason,
    Opened,
    Origin,
    Pending,
    Suffix,
    Timer,
    Veto,
    WriterClosed,
    address_from_avro,
    address_to_avro,
    begin_from_avro,
    begin_to_avro,
    checked_generation,
    checked_name,
    checked_time,
    checked_timer,
    origin_from_avro,
)


def _detail_to_avro(detail: Detail) -> tuple[str, dict[str, Any]] | None:
    if detail is None:
        return None
    value: dict[str, Any] = {name: _field_to_avro(name, field) for name, field in detail._asdict().items()}
    return f"konverse.{type(detail).__name__}", value


def _field_to_avro(name: str, field: Any) -> Any:
    if isinstance(field, Address):
        return address_to_avro(field)
    if isinstance(field, BounceReason | NoticeReason):
        return field.name
    if isinstance(field, Origin):
        return field._asdict()
    if name == "headers":
        return [{"name": header, "value": content} for header, content in field]
    if isinstance(field, tuple):
        return [{"writer": writer, "counter": counter} for writer, counter in field]
    return field


def _detail_from_avro(value: tuple[str, dict[str, Any]] | None) -> Detail:
    if value is None:
        return None
    name, fields = value
    detail: Detail = _DETAILS[name](**{
        field: _FIELDS[field](item) if field in _FIELDS else item for field, item in fields.items()
    })  # fmt: skip
    return detail


_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    "home": address_from_avro,
    "cleaned": lambda item: item and address_from_avro(item),
    "at": address_from_avro,
    "judge": address_from_avro,
    "reason": lambda name: (BounceReason if name in BounceReason.__members__ else NoticeReason)[name],
    "received": lambda items: tuple((item["writer"], item["counter"]) for item in items),
    "origin": origin_from_avro,
    "headers": lambda items: tuple((item["name"], item["value"]) for item in items),
    "timeout_ms": checked_timer,
    "timestamp_ms": checked_time,
    "hop": checked_generation,
    "end_of_stream": checked_name,
}
_DETAILS: Final[dict[str, Any]] = {
    f"konverse.{kind.__name__}": kind
    for kind in (
        End,
        Bounce,
        Notice,
        WriterClosed,
        Pending,
        Decision,
        Veto,
        FinAnswer,
        BounceId,
        Opened,
        Forwarded,
        Closed,
        Timer,
    )
}


def suffix_to_avro(suffix: Suffix) -> dict[str, Any]:
    """A suffix in its Avro form."""
    return {
        "message_type": suffix.message_type,
        "fragment": suffix.fragment and {"index": suffix.fragment[0], "count": suffix.fragment[1]},
        "home": address_to_avro(suffix.home),
        "begin": suffix.begin and begin_to_avro(suffix.begin),
        "origin": suffix.origin,
        "detail": _detail_to_avro(suffix.detail),
    }


def suffix_from_avro(value: dict[str, Any]) -> Suffix:
    """A suffix from its Avro form."""
    return Suffix(
        checked_name(value["message_type"]) or "",
        value["fragment"] and (value["fragment"]["index"], value["fragment"]["count"]),
        value["home"] and address_from_avro(value["home"]),
        value["begin"] and begin_from_avro(value["begin"]),
        value["origin"],
        _detail_from_avro(value["detail"]),
    )
