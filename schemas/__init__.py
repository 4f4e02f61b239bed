"""The vocabulary: names, limits, errors, records and their bytes. Pure: it imports nothing of konverse from elsewhere.

    errors          every exception, in one tree, with Service Broker's numbers
    limits          every bound of the product, with its reason; units stand last in the names
    identifiers     names and addresses, and how topics and Redis keys are made of them
    levels          priority levels
    groups          the group of a side before anybody moves it
    timeouts        seconds of callers into milliseconds
    system_messages EndDialog, DialogTimer and the Error document
    origins         Errors that a router passes on
    validation      the checks of a body that need no schema
    wire/           records of data logs, journals and snapshots
    catalog/        the objects of a database

What is on Kafka stays readable by every later version. So a change here is a change of a format: fields are added
with defaults, numbers are never used again, and `tests/golden` holds journals of earlier versions.

Bytes may come from anybody who may write to a topic. Each decoder either returns a value within its bounds or raises
MalformedRecord, whatever the bytes are: hypothesis tries it.
"""
