"""Time of a ready-made classifier for a message of about a hundred bytes: `python -m tests.bench.classify`.

Each line has nanoseconds per message, and the ratio to its library alone on the same body: parsing the document,
searching, hashing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from io import BytesIO
from typing import Any, Final
from xml.parsers.expat import ParserCreate

import re2
from fastavro import parse_schema, schemaless_reader

from konverse.routing.classifiers import avro_field, json_path, key_hash, regular_expression, to_service_name, xpath
from konverse.routing.partitioning import murmur2
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.validation import parser_of
from tests.kit.classifying import ORDER_SCHEMA, Dialog, Letter, table_of

ROUNDS: Final = 7
MESSAGES: Final = 5_000

JSON: Final = b'{"number": 7, "customer": {"name": "Contoso", "region": "north"}, "pieces": [1, 2, 3], "note": "gift"}'
XML: Final = b"<message><order number='7'><region>north</region></order><toServiceName>//n</toServiceName></message>"
TEXT: Final = b"number=7;customer=Contoso;region=north;pieces=1,2,3;a further field that nobody looks at=0"
AVRO: Final = b"\x0e\x02\x0anorth" + bytes(8)
KEY: Final = b"customer 4711"
TABLE: Final = table_of("Regions", {f"key {number}": Target("//x") for number in range(10_000)}, Target("//n"))


def nanoseconds(work: Callable[[], Any]) -> float:
    """Nanoseconds of a call in the fastest of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        since = time.perf_counter_ns()
        for _ in range(MESSAGES):
            work()
        best = min(best, (time.perf_counter_ns() - since) / MESSAGES)
    return best


def main() -> None:
    """Print a line for each classifier."""
    schema: Any = parse_schema(json.loads(ORDER_SCHEMA))
    etree: Any = import_module("lxml.etree")
    plain, pattern = parser_of(etree), re2.compile("region=([a-z]+)")
    services = [f"//{number}" for number in range(8)]
    rows: list[tuple[str, Any, Letter, Callable[[], Any]]] = [
        ("to_service_name", to_service_name(), Letter(XML), lambda: ParserCreate().Parse(XML, True)),
        ("xpath", xpath("/message/order/region"), Letter(XML), lambda: etree.fromstring(XML, plain)),
        ("json_path", json_path("$.customer.region"), Letter(JSON), lambda: json.loads(JSON)),
        (
            "json_path, table of 10,000",
            json_path("$.customer.region", table=TABLE),
            Letter(JSON),
            lambda: json.loads(JSON),
        ),
        (
            "avro_field",
            avro_field("customer.region", ORDER_SCHEMA),
            Letter(AVRO),
            lambda: schemaless_reader(BytesIO(AVRO), schema, None),
        ),
        ("regular_expression", regular_expression("region=([a-z]+)"), Letter(TEXT), lambda: pattern.search(TEXT)),
        ("key_hash", key_hash(services), Letter(b"", dialog=Dialog(KEY)), lambda: murmur2(KEY)),
    ]
    for name, classifier, message, raw in rows:
        assert isinstance(classifier(message), Target), name
        ours, theirs = nanoseconds(partial(classifier, message)), nanoseconds(raw)
        print(f"{name:28} {ours:8,.0f} ns a message, {ours / theirs:5.2f} times its library alone")


if __name__ == "__main__":
    main()
