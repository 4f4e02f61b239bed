"""`konverse acl`: prints the Kafka rights that a kind of process needs, as commands that grant them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import typer
from confluent_kafka.admin import AclOperation, ResourceType

from konverse.bridge.admin.rights import ANY, GROUP, KINDS, Grant, ProcessRights, Right
from konverse.bridge.runtime.settings import Settings
from konverse.schemas.identifiers import check_name

from .connection import AsJson, Database, Kafka
from .tables import print_json

_WORDS: Final = "; ".join(f"{name}: {kind.words}" for name, kind in KINDS.items())
_NAMES: Final = {AclOperation.DESCRIBE_CONFIGS: "DescribeConfigs"}


def acl(
    kind: Annotated[str, typer.Argument(help=f"Kind of process. {_WORDS}")],
    principal: Annotated[str, typer.Option("--principal", help="Kafka principal, such as User:orders")],
    *,
    queue: Annotated[
        list[str] | None, typer.Option(help="Queue that it reads, or whose service it sends for; may be repeated")
    ] = None,
    to: Annotated[list[str] | None, typer.Option(help="Queue to which it sends; may be repeated")] = None,
    instance: Annotated[str | None, typer.Option("--instance", help="Instance (else KONVERSE_INSTANCE)")] = None,
    kafka: Kafka = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Print the rights that a kind of process needs, as `kafka-acls` commands. Kafka is not asked.

    Rights that only some programs of the kind need are comments with their purpose. The operating page has the table.
    """
    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(KINDS)}", param_hint="KIND")
    queues, others = queue or [], to or []
    if KINDS[kind].has_queues and not queues:
        raise typer.BadParameter(f"name the queues of this {kind} with --queue", param_hint="--queue")
    settings = Settings.load(kafka=kafka, database=database, **({} if instance is None else {"instance": instance}))
    for name in (*queues, *others):
        check_name("queue", name)
    needed, *special = ProcessRights(settings.instance, settings.database, queues, others).of(kind)
    if as_json:
        print_json([_plain(right, principal, grant) for grant in (needed, *special) for right in _once(grant.rights)])
        return
    for command in _commands(_once(needed.rights), principal, settings.bootstrap):
        typer.echo(command)
    for grant in special:
        rights = [right for right in _once(grant.rights) if right not in needed.rights]
        if rights:
            typer.echo(f"# {grant.purpose}:")
        for command in _commands(rights, principal, settings.bootstrap):
            typer.echo(f"# {command}")


def _once(rights: Iterable[Right]) -> list[Right]:
    return [*dict.fromkeys(rights)]


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
