"""`konverse acl`: prints the Kafka rights that a kind of process needs, as commands that grant them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Annotated, Final

import typer
from confluent_kafka.admin import AclOperation, ResourceType

from konverse.bridge.admin.rights import ANY, GROUP, KINDS, Grant, ProcessRights, Right
from konverse.bridge.runtime.settings import Settings
from konverse.schemas.identifiers import check_name

from .connection import AsJson, Database, Kafka
from .tables import print_json

Kind = Enum("Kind", {name: name for name in KINDS}, type=str)  # type: ignore[misc]  # typer lists the choices

_WORDS: Final = "; ".join(f"{name}: {kind.words}" for name, kind in KINDS.items())
_NAMES: Final = {AclOperation.DESCRIBE_CONFIGS: "DescribeConfigs"}


def acl(
    kind: Annotated[Kind, typer.Argument(help=f"Kind of process. {_WORDS}")],
    principal: Annotated[str, typer.Option("--principal", help="Kafka principal, such as User:orders")],
    *,
    queue: Annotated[
        list[str], typer.Option("--queue", help="Queue that it reads, or whose service it sends for; may be repeated")
    ] = [],  # noqa: B006  # typer copies it
    to: Annotated[list[str], typer.Option("--to", help="Queue to which it sends; may be repeated")] = [],  # noqa: B006
    instance: Annotated[str | None, typer.Option("--instance", help="Instance (else KONVERSE_INSTANCE)")] = None,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Print the rights that a kind of process needs, as `kafka-acls` commands. Kafka is not asked.

    Rights that only some programs of the kind need are comments with their purpose. The operating page has the table.
    """
    if KINDS[kind.value].has_queues and not queue:
        raise typer.BadParameter(f"name the queues of this {kind.value} with --queue", param_hint="--queue")
    settings = Settings.load(kafka=kafka, database=database, **({} if instance is None else {"instance": instance}))
    for name in (*queue, *to):
        check_name("queue", name)
    grants = ProcessRights(settings.instance, settings.database, queue, to).of(kind.value)
    grants = [grant for grant in grants if grant.rights]
    if as_json:
        print_json([_plain(right, principal, grant) for grant in grants for right in dict.fromkeys(grant.rights)])
        return
    known: set[Right] = set()
    for grant in grants:
        rights = [right for right in dict.fromkeys(grant.rights) if right not in known]
        if not grant.purpose:
            known.update(rights)
        if grant.purpose and rights:
            typer.echo(f"# {grant.purpose}:")
        for command in _commands(rights, principal, settings.bootstrap):
            typer.echo(f"# {command}" if grant.purpose else command)


def _commands(rights: Iterable[Right], principal: str, bootstrap: str) -> Iterator[str]:
    """One command for each resource."""
    operations: dict[tuple[ResourceType, str], list[AclOperation]] = {}
    for right in rights:
        operations.setdefault((right.resource, right.name), []).append(right.operation)
    for (resource, name), wanted in operations.items():
        words = ["kafka-acls", "--bootstrap-server", bootstrap, "--add", "--allow-principal", principal]
        words += [word for operation in wanted for word in ("--operation", _name_of(operation))]
        words += ["--group" if resource is GROUP else "--topic", name.removesuffix(ANY)]
        words += ["--resource-pattern-type", "prefixed"] if name.endswith(ANY) else []
        yield shlex.join(words)


def _plain(right: Right, principal: str, grant: Grant) -> dict[str, str]:
    return {
        "principal": principal,
        "resource": right.resource.name.lower(),
        "name": right.name.removesuffix(ANY),
        "pattern": "prefixed" if right.name.endswith(ANY) else "literal",
        "operation": _name_of(right.operation),
        "purpose": grant.purpose,
    }


def _name_of(operation: AclOperation) -> str:
    """The name that `kafka-acls` takes."""
    return _NAMES.get(operation, operation.name.capitalize())
