"""docs/views.md, made from the code: every view, its columns, and what its docstrings say of them.

python -m tests.kit.views_page > docs/views.md
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any, Final, get_args, get_type_hints

from konverse.bridge.views.endpoints import NOT_IN_REDIS
from konverse.bridge.views.views import COLUMNS, Views
from konverse.schemas.limits import VIEW_AHEAD_RECORDS_MAX

HEAD: Final = """# Views

Service Broker shows what it holds in catalog views. konverse has the same views under the same column names; they are
read, and nothing is consumed, claimed or locked by that. This page is made from the code by
`python -m tests.kit.views_page`; a test holds it to that, and another one runs the program.

```python
import konverse

with konverse.connect("kafka://localhost:9092", redis="redis://localhost:6379", database="sales") as broker:
    views = broker.views
    services = {row.service_id: row.name for row in views.services()}
    for row in views.conversation_endpoints():
        print(services[row.service_id], row.state_desc, "with", row.far_service)
    for row in views.contents("Orders"):
        print(row.status, row.message_type_name, row.message_sequence_number, row.message_body)
    for row in views.transmission_queue():
        print(row.message_type_name, "to", row.to_service_name, row.transmission_status)
    quick = views.conversation_endpoints(columns=("conversation_id", "state"))
    print(all(source.from_redis for source in quick.sources))
```

The same on the command line, as a table, or with `--json` as one line for each row:

```sh
konverse view conversation_endpoints --where state=DI
konverse view conversation_endpoints --queue Orders --columns conversation_id,far_service
konverse view contents --queue Orders --json
konverse view transmission_queue
```

## Where rows come from

Redis holds states, sequences and timers of endpoints. `conversation_endpoints` comes from there when no other column is
wanted (`columns=`, or the columns of the table on a terminal and those of `--where`) and Redis has all of a partition:
written by its last owner, who lives or has given it back, and who has ingested what is older than five seconds. For
{not_in_redis},
and wherever Redis is empty, evicted, behind or away, the partition is folded from its logs, as `conversation_groups`,
`contents` and `transmission_queue` always are. That needs no Redis and is never behind: it has what was committed, and
judges what waits in the data log as the next owner would. It costs the reading of the newest snapshot, of the journal
behind it and of what waits, and for a moment the memory of the partition's state: some 0.1 s for a small partition, and
as long as a recovery for a large one. At most {ahead} records that nobody has ingested are looked at; `source.unseen`
counts the rest. `view.sources` says for each partition which it was, and why; the command says so below the table, or
on standard error.

## What keeps a message

| `transmission_status` | What to do |
|---|---|
| empty | nothing: it is on its way |
| Orders/0 has no owner | start a reader of the queue; of the transmission queue: `konverse transmit` |
| the owner of Orders/0 is silent for 700 s | it is dead: start a reader |
| the owner of Orders/0 has not committed it yet | nothing: it does so within its next commits |
| it waits for what was sent to … before | see what keeps that |
| what Kafka's client says | this process does not reach Kafka: look at the broker and its address |

`broker.views.transmission_status(conversation)` is GET_TRANSMISSION_STATUS: the text for one conversation.

## Numbers of objects

`service_id` and its like are 65,536 and the offset at which the object's CREATE stands in the journal of the catalog.
So they are the same for everybody, an ALTER leaves them, and no other object ever gets them. Those of what every
database is born with are smaller. NULL stands where an object was dropped and its conversations live still.

## The views

NULL is None in Python. Columns that tell of owners, keys and permissions (`principal_id`, `far_principal_id`, session
keys), of fragments and of messages that came out of order are left out: there is nothing that they could tell.
`message_type_xml_schema_collection_usages` is left out; `konverse list` shows collections and the types that use them.
"""

_TYPES: Final = {"str": "text", "int": "integer", "bool": "bit", "bytes": "binary", "UUID": "uniqueidentifier"}


def page() -> str:
    """The whole page."""
    unheld = ", ".join(f"`{name}`" for name in sorted(NOT_IN_REDIS))
    parts = [HEAD.replace("{not_in_redis}", unheld).replace("{ahead}", f"{VIEW_AHEAD_RECORDS_MAX:,}")]
    for name in COLUMNS:
        method = getattr(Views, name)
        parts += [f"\n### {name}\n\n{inspect.getdoc(method)}\n\n| Column | Type | |\n|---|---|---|\n"]
        parts += _columns(_row_class(method))
    return "".join(parts)


def _row_class(method: Any) -> Any:
    """The class of a view's rows."""
    (row,) = get_args(get_type_hints(method, {**vars(inspect.getmodule(method)), "Sender": object})["return"])
    return row


def _columns(row: Any) -> Iterator[str]:
    source: Any = ast.parse(inspect.getsource(row)).body[0]
    for node, behind in zip(source.body, [*source.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            kind, *null = ast.unparse(node.annotation).split(" | ")
            said = getattr(getattr(behind, "value", None), "value", "") if isinstance(behind, ast.Expr) else ""
            shown = _TYPES.get(kind, kind) + (" or NULL" if null else "")
            yield f"| `{ast.unparse(node.target)}` | {shown} | {' '.join(str(said).split())} |\n"


if __name__ == "__main__":
    print(page(), end="")
