"""The order service as an application: you write the handler, and `konverse run` does the rest.

    konverse run examples.sales.app:app                      until Ctrl-C
    konverse run examples.sales.app:app --readers processes  a process for each reader

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

import json

import konverse
from examples.sales.services import ORDERS, RECEIPT

app = konverse.App()


@app.activate(ORDERS, max_readers=2)
def on_order(transaction: konverse.Transaction) -> None:
    """Answer every order with a receipt, and end a conversation when the shop has ended it."""
    for message in transaction:
        if message.type in (konverse.END_DIALOG, konverse.ERROR):
            transaction.end(message.dialog)
            return
        receipt = {"number": json.loads(message.body)["number"], "accepted": True}
        if message.dialog.state.code == "CO":  # else the shop has ended, and wants no receipt
            transaction.send(message.dialog, RECEIPT, json.dumps(receipt).encode())
