"""The options that every command shares: where the servers are, and the database."""

from __future__ import annotations

from typing import Annotated

import typer

Kafka = Annotated[str | None, typer.Option("--kafka", help="kafka://host:port (else KONVERSE_KAFKA)")]
RedisUrl = Annotated[str | None, typer.Option("--redis", help="redis://host:port (else KONVERSE_REDIS)")]
Database = Annotated[str | None, typer.Option("--database", help="Database (else KONVERSE_DATABASE)")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables")]
