"""A process that classifies by a routing table: `python -m tests.integration.table_follower KAFKA DATABASE`.

It prints each change of its decision about the key `north`, with the time, as JSON lines.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import konverse
from tests.kit.classifying import Letter

LOOKS_EVERY_S = 0.005


def follow(kafka: str, database: str) -> None:
    """Classify until the process is ended."""
    with konverse.connect(kafka, database=database) as broker:
        classify = broker.classifier({"kind": "json_path", "path": "$.region", "table": "Regions"})
        last: object = None
        while True:
            decision = classify(Letter(b'{"region": "north"}'))
            if decision != last:
                print(json.dumps([time.time(), decision[0]]), flush=True)
                last = decision
            threading.Event().wait(LOOKS_EVERY_S)


if __name__ == "__main__":
    follow(*sys.argv[1:3])
