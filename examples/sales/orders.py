"""The file of sales: CSV or JSON lines, one order per line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from konverse.schemas.errors import BadInput

SHIPPED: Final = Path(__file__).with_name("sales.csv")

CUSTOMER_NAMES: Final = ("customer", "customer_id", "client", "user", "user_id", "account", "key", "id")


@dataclass(frozen=True, slots=True)
class Order:
    """One line of the file: its customer, and the whole line as JSON."""

    number: int
    """Place in the file, from 0, by which the check identifies the order."""
    customer: str
    body: bytes


def read_orders(path: Path) -> Iterator[Order]:
    """The orders of a file. Raises BadInput, which names the line and its fault."""
    if not path.is_file():
        raise BadInput(f"there is no file {path}; give --input a CSV file with a header or a file of JSON lines")
    lines = _json_lines(path) if path.suffix in {".json", ".jsonl", ".ndjson"} else _csv_lines(path)
    customer = ""
    for number, (line, row) in enumerate(_readable(path, lines)):
        customer = customer or _customer_column(path, row)
        if customer not in row:
            raise BadInput(f"{path}, line {line}: the column {customer!r}, which names the customer, is missing")
        body = json.dumps({**row, "number": number}, ensure_ascii=False, separators=(",", ":")).encode()
        yield Order(number, str(row[customer]), body)


def _readable(path: Path, lines: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        yield from lines
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 ({error.reason}); convert it, e.g. with iconv") from None
    except csv.Error as error:
        raise BadInput(f"{path} is not CSV: {error}") from None


def _customer_column(path: Path, row: dict[str, Any]) -> str:
    """The column of the customer: one with a usual name, else the first column."""
    for name in CUSTOMER_NAMES:
        if name in row:
            return name
    if not row:
        raise BadInput(f"{path} has no columns")
    return next(iter(row))


def _csv_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            if None in row or None in row.values():
                raise BadInput(f"{path}, line {reader.line_num}: the number of columns differs from the header's")
            yield reader.line_num, dict(row)


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except json.JSONDecodeError as error:
                raise BadInput(f"{path}, line {line} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise BadInput(f"{path}, line {line} is not a JSON object")
            yield line, row
