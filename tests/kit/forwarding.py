"""A router for tests of `konverse run tests.kit.forwarding:app`. It sends each order to the region that it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import konverse
from tests.kit.regions import REGIONS, service_of
from tests.kit.shop import ORDER_SERVICE, ORDERING, until

HANG: Final = b"north, some day"
"""Body of an order whose classifier hangs until the file `released` exists."""

CLASSIFY_TIMEOUT_S: Final = 0.5

folder = Path(os.environ.get("ANSWERING_FOLDER", "."))
app = konverse.App()


@app.router(ORDER_SERVICE, contracts=[ORDERING], classify_timeout_s=CLASSIFY_TIMEOUT_S)
def by_region(message: konverse.Message) -> str | konverse.Unclassifiable:
    """The service of the region whose name begins the order."""
    if message.body == HANG:
        until((folder / "released").exists, "release of the classifier", 120)
    region = next((name for name in REGIONS if message.body.startswith(name.encode())), None)
    return service_of(region) if region else konverse.Unclassifiable("no such region")
