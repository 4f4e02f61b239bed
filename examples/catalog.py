"""The catalog: message types, a contract, queues and services are created, listed, altered and dropped.

    python -m examples.catalog

KONVERSE_KAFKA and KONVERSE_DATABASE, or konverse.toml, name the Kafka brokers and the database.
"""

from __future__ import annotations

from typing import Final

import konverse
from konverse.schemas.errors import InvalidContract, StillUsed

INVOICE: Final = "//books/Invoice"
BOOKED: Final = "//books/Booked"
BOOKING: Final = "//books/Booking"
LEDGER: Final = "//books/Ledger"

INVOICE_XSD: Final = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:element name="invoice"><xs:complexType><xs:sequence>
    <xs:element name="amount" type="xs:decimal"/>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>"""


def main() -> None:
    """Create, list, alter and drop. Everything is dropped again, so this can run any number of times."""
    with konverse.connect() as broker:
        broker.admin.create_xml_schema_collection("//books/Documents", [INVOICE_XSD])
        broker.admin.create_message_type(INVOICE, "VALID_XML", schema_collection="//books/Documents")
        broker.admin.create_message_type(BOOKED, "EMPTY")
        try:
            broker.admin.create_contract(BOOKING, {BOOKED: "TARGET"})
        except InvalidContract as error:
            print(f"refused ({error.number}): {error}")
        broker.admin.create_contract(BOOKING, {INVOICE: "INITIATOR", BOOKED: "TARGET"})

        broker.admin.create_queue("Books", partitions=2)
        broker.admin.create_service(LEDGER, queue="Books", contracts=[BOOKING])
        broker.admin.create_queue(
            "Books", partitions=2, if_not_exists=True
        )  # creating the same queue again changes nothing

        queues = {row.object_id: row.name for row in broker.views.service_queues()}
        for service in broker.views.services():
            print(f"{service.name} is on queue {queues[service.service_queue_id]}")
        for kind in broker.views.service_message_types():
            if kind.name.startswith("//books/"):
                print(f"{kind.name} has bodies of validation {kind.validation}")

        broker.admin.alter_message_type(BOOKED, "NONE")
        broker.admin.alter_queue("Books", status=False)  # no reader receives from it
        try:
            broker.admin.drop_contract(BOOKING)
        except StillUsed as error:
            print(f"refused: {error}")

        broker.admin.drop_service(LEDGER)
        broker.admin.drop_queue("Books")  # its topics are deleted with it
        broker.admin.drop_contract(BOOKING)
        for name in (INVOICE, BOOKED):
            broker.admin.drop_message_type(name)
        broker.admin.drop_xml_schema_collection("//books/Documents")
        print("dropped again")


if __name__ == "__main__":
    main()
