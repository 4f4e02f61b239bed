"""The demo's file of sales: usual files work, and others are refused with the line number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.sales.orders import SHIPPED, read_orders
from konverse.schemas.errors import BadInput


def written(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_the_shipped_file_has_at_least_ten_thousand_orders_of_a_thousand_customers() -> None:
    orders = list(read_orders(SHIPPED))
    assert len(orders) >= 10_000
    assert len({order.customer for order in orders}) > 1_000


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", "customer,number,what\nAda,A7,cup\nBo,A8,pot\n"),
        ("a.jsonl", '{"customer": "Ada", "number": "A7"}\n\n{"customer": "Bo", "number": "A8"}\n'),
    ],
)
def test_the_position_in_the_file_is_the_order_number_regardless_of_the_columns(
    tmp_path: Path, name: str, data: str
) -> None:
    orders = list(read_orders(written(tmp_path / name, data)))
    assert [(order.number, order.customer) for order in orders] == [(0, "Ada"), (1, "Bo")]
    assert [json.loads(order.body)["number"] for order in orders] == [0, 1]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("latin.csv", b"customer,what\nJos\xe9,caf\xe9\n", "not UTF-8.*iconv"),
        ("wide.csv", "customer,what\nAda," + "x" * 200_000 + "\n", "is not CSV.*field larger than"),
        ("short.csv", "customer,what\nAda\n", "line 2: the number of columns differs"),
        ("a.jsonl", "{}\n", "has no columns"),
        ("b.jsonl", '{"customer": "Ada"}\n{"what": 1}\n', "line 2: the column 'customer'.* is missing"),
        ("c.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("d.jsonl", "{\n", "line 1 is not JSON"),
    ],
)
def test_an_unusable_file_is_refused_with_the_reason(tmp_path: Path, name: str, data: str | bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        list(read_orders(written(tmp_path / name, data)))
