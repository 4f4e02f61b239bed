"""`App`, the application object that `konverse run module:app` starts, and the import of `module:app`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from konverse.bridge.broker import Broker
from konverse.bridge.router.registry import RouterRegistry
from konverse.bridge.runtime.arguments import did_you_mean
from konverse.bridge.runtime.collector import prepare_collector
from konverse.bridge.runtime.settings import Settings
from konverse.schemas.errors import InvalidSettings, KonverseError


class App(RouterRegistry):
    """Handlers and routers, and the database whose queues they serve. Creating one does not connect.

    `konverse run module:app` starts it. Arguments are those of `konverse.connect`; missing ones come from the
    environment or `konverse.toml` when it connects.
    """

    def __init__(
        self, kafka: str | None = None, *, redis: str | None = None, database: str | None = None, **settings: Any
    ) -> None:
        super().__init__(self.connect)
        self._settings = {"kafka": kafka, "redis": redis, "database": database, **settings}

    def connect(self) -> Broker:
        """A new connection, as from `konverse.connect`. Raises InvalidSettings, KafkaUnavailable."""
        prepare_collector()
        return Broker(Settings.load(**self._settings))


def load(name: str) -> App | Broker:
    """Import the application `module:name`, searching the working folder first. Raises InvalidSettings.

    Errors of konverse that the module raises pass through, such as KafkaUnavailable from a module that connects.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise InvalidSettings(f"{name!r} is not an application; write module:name, like shop:app for `app` in shop.py")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except KonverseError:
        raise
    except SystemExit as error:
        raise InvalidSettings(
            f"module {module_name!r} ends the program when it is imported (SystemExit: {error}); put the code "
            'that runs it as a program under `if __name__ == "__main__":`'
        ) from error
    except Exception as error:
        raise InvalidSettings(
            f"module {module_name!r} cannot be imported ({type(error).__name__}: {error}); it is searched for in "
            f"{here} and on the Python path (PYTHONPATH)"
        ) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, App | Broker):
        known = [key for key, value in vars(module).items() if isinstance(value, App | Broker)]
        raise InvalidSettings(
            f"{attribute!r} of module {module_name!r} is not a konverse.App{did_you_mean(attribute, known)}; it has "
            f"{', '.join(known) or 'none'}"
        )
    return found


def connection(app: App | Broker) -> Broker:
    """The broker of an application. The caller closes it."""
    return app.connect() if isinstance(app, App) else app
