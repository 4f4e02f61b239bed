"""The pools of a broker, and the readers that receive DialogTimer, EndDialog and Error for them."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from konverse.bridge.client.begin import named_broker_id
from konverse.bridge.client.client import Client
from konverse.bridge.client.connection import Connection
from konverse.bridge.kafka.log_reader import LogReader
from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.runtime.settings import PoolOptions
from konverse.bridge.runtime.threads import AGAIN_S, EXPECTED_ERRORS, in_background, is_transient
from konverse.dialog.pool.recycling import SYSTEM, Farewell, answer, is_pooled
from konverse.routing.contracts import check_accepts
from konverse.schemas.catalog.objects import Queue, Service
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import BrokerClosed, MessageTypeNotFound, NotInContract, PoolInUse, WrongDirection
from konverse.schemas.identifiers import Role, pool_key

from .context import PoolContext
from .lease import Lease
from .pool import Pool

if TYPE_CHECKING:
    from konverse.bridge.client.sender import Sender
    from konverse.bridge.reader.reader import Reader
    from konverse.dialog.transaction.received import Message
    from konverse.dialog.transaction.transaction import Transaction
    from konverse.schemas.identifiers import Address

log: Final = logging.getLogger("konverse.pool")

_OWN: Final = "own"
"""Savepoint at the start of a transaction."""


class Pools:
    """The pools of a broker, and the readers that it opened for them."""

    def __init__(self, connection: Connection, client: Client, read: Callable[[str], Reader]) -> None:
        """`read` opens a reader of a queue (`Broker.reader`)."""
        self._catalog = connection.catalog
        self._network = connection.network
        self._kafka = connection.kafka
        self._settings = connection.settings
        self._database = connection.database
        self._client = client
        self._read = read
        self._lock = threading.Lock()
        self._pools: list[Pool] = []
        self._warned: set[str] = set()
        """Services with messages that no handler receives; each is logged once."""
        self._answering: dict[str, Reader] = {}
        """Queue -> reader that a pool with `read=True` has opened."""

    def open(self, options: PoolOptions) -> Pool:
        """A new pool (`Broker.pool`)."""
        options.check()
        queues_of = partial(self._catalog.queues_of, *_services(options))
        home, _ = self._network.placed(options.to_service, None, b"", queues_of)
        self._check_end_of_stream(options.contract, options.end_of_stream)
        sender = self._client.open_sender()
        context = PoolContext(
            self._client.begin,
            self._client.adopt,
            sender,
            self._client.mailboxes,
            partial(self._ends_of_homes, options.from_service),
            partial(self._check_redirected, options.contract),
            self._settings.send_timeout_s,
        )
        with self._lock:
            self._check_name(options)
            with ExitStack() as undoing:
                lease = self._lease(options, sender)
                if lease is not None:
                    undoing.callback(lease.close)
                    lease.take()
                reader = self._read(home.name) if options.read and home.name not in self._answering else None
                if reader is not None:
                    undoing.callback(reader.close)
                    in_background("konverse-pool-answers", partial(self._answer_until_closed, reader))
                pool = Pool(options, context, self._database, self._answer_all, lease)
                undoing.pop_all()
            self._pools = [*self._open_pools(), pool]
            if reader is not None:
                self._answering[home.name] = reader
        return pool

    def _check_end_of_stream(self, contract: str, end_of_stream: str) -> None:
        try:
            self._catalog.check_send(contract, Role.INITIATOR, end_of_stream)
        except (MessageTypeNotFound, NotInContract, WrongDirection) as error:
            raise type(error)(
                f"{error}. A pool sends {end_of_stream!r} to its target as the last message of a conversation: let "
                "INITIATOR send that type in the contract, or name another type of the contract as end_of_stream"
            ) from None

    def _check_redirected(self, contract: str, target: Target) -> None:
        """Raise ServiceNotFound, InvalidRoute for a service that does not accept the contract, BadInput for no id."""
        broker_id = named_broker_id(self._catalog, target.broker_instance)
        check_accepts(contract, target.service, self._network.service(target.service, broker_id).service.contracts)

    def _ends_of_homes(self, from_service: str) -> dict[Address, int]:
        queue = self._catalog.get(Queue, self._catalog.get(Service, from_service).queue)
        homes = [queue.address(number) for number in range(queue.partitions)]
        with closing(LogReader(self._kafka)) as log:
            return {home: log.ends(home.topic, home.partition)[1] for home in homes}

    def _check_name(self, options: PoolOptions) -> None:
        if options.name is not None and any(_names(pool.options) == _names(options) for pool in self._open_pools()):
            raise PoolInUse(f"this broker has pool {options.name!r} open already; use that one, or give another name")

    def _lease(self, options: PoolOptions, sender: Sender) -> Lease | None:
        """The lease of a named pool, to be taken; None for a pool without a name, or without Redis."""
        redis = self._settings.redis
        if options.name is None or not redis:
            return None
        names = "\0".join(_names(options))
        return Lease(
            redis, pool_key(self._settings.instance, self._database, names), options.name, sender.session.writer
        )

    def _open_pools(self) -> Iterator[Pool]:
        return (one for one in self._pools if not one.over)

    def after_fork(self) -> None:
        """Mark as closed in a forked child (`bridge.runtime.forks`)."""
        self._lock = threading.Lock()
        for pool in self._pools:
            pool.after_fork()

    # ------------------------------------------------------------------------------------------------------ inside

    def _answer_all(self, transaction: Transaction) -> list[Message]:
        """See `Pool.answer`. Answers for all pools of this broker, since their conversations may share the queue."""
        rest, farewells = answer(transaction, transaction, self._keeps)
        self._pass_on(farewells)
        return rest

    def _answer_until_closed(self, reader: Reader) -> None:
        """Run the reader until the broker is closed; a later pool on its queue opens another one if it failed."""
        try:
            self._run_with_retries(reader)
        finally:
            with self._lock:
                if self._answering.get(reader.queue.name) is reader:
                    del self._answering[reader.queue.name]
            reader.close()

    def _run_with_retries(self, reader: Reader) -> None:
        """Run the reader; retry when the cause may pass, such as STATUS OFF (77)."""
        trouble = LogThrottle()
        while not reader.closed:
            try:
                reader.run(self._answer_own)
            except BrokerClosed:
                return
            except EXPECTED_ERRORS as error:
                if not is_transient(error):
                    log.error(  # noqa: TRY400  # no traceback
                        "pools no longer process EndDialog and Error from queue %r: %s", reader.queue.name, error
                    )
                    return
                if trouble.due():
                    log.warning(
                        "pools cannot process EndDialog and Error from queue %r, retrying: %s", reader.queue.name, error
                    )
                time.sleep(AGAIN_S)
            else:
                return

    def _answer_own(self, transaction: Transaction) -> None:
        """As `_answer_all`, but messages for the application stay in the queue, which the application does not read."""
        transaction.savepoint(_OWN)
        mine = list(takewhile(_is_ours, transaction))
        if len(mine) < len(transaction):
            self._warn_unread(transaction)
            transaction.rollback(_OWN)
            mine = transaction.receive(len(mine)) if mine else []
            if not all(map(_is_ours, mine)):  # received in another order this time
                transaction.rollback(_OWN)
                return
        _, farewells = answer(transaction, mine, self._keeps)
        self._pass_on(farewells)

    def _warn_unread(self, transaction: Transaction) -> None:
        """Warn once for each service that messages for the application wait in a queue that only its pool reads."""
        service = transaction.dialog.service
        if service not in self._warned:
            self._warned.add(service)
            log.warning(
                "messages for the application wait on conversation %s of service %r and block later messages: "
                "its pool reads the queue only for EndDialog and Error. Create the pool with read=False, and read the "
                "queue with a handler that begins with pool.answer(transaction)",
                transaction.dialog.id,
                service,
            )

    def _keeps(self, farewell: Farewell) -> bool:
        """Whether a pool of this broker will end the conversation, once its undelivered messages have come back."""
        return any(pool.keeps(farewell) for pool in self._pools)

    def _pass_on(self, farewells: list[Farewell]) -> None:
        for farewell in farewells:
            if farewell.code:
                log.error(
                    "conversation %s received error Code:%d Description:%r",
                    uuid.UUID(bytes=farewell.conversation),
                    farewell.code,
                    farewell.description,
                )
            for pool in self._pools:
                pool.on_farewell(farewell)

    def close(self) -> None:
        """Shut the pools down, and close the readers."""
        with ExitStack() as exits:
            for reader in [*self._answering.values()]:  # a copy: a reader that fails is removed by its thread
                exits.callback(reader.close)
            for pool in self._pools:
                exits.callback(pool.shut_down)


def _names(options: PoolOptions) -> tuple[str, ...]:
    """The names by which named pools differ."""
    return options.name or "", *_services(options), options.end_of_stream


def _services(options: PoolOptions) -> tuple[str, str, str]:
    return options.from_service, options.to_service, options.contract


def _is_ours(message: Message) -> bool:
    return message.type in SYSTEM and is_pooled(message.dialog)
