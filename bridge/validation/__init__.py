"""Validates message bodies against schemas: XML Schema, and by extension JSON Schema and Avro.

`bridge.catalog.judge` drives this package when an owner ingests a message whose type has a schema. `bridge.admin` uses
it to check a schema before it enters the catalog. Types without a schema (NONE, EMPTY, WELL_FORMED_XML) are checked in
`konverse.schemas.validation`.

    validator      `Validator`: asks the validation process, and starts a new one when it has died
    worker         the validation process: one question, one or several answers
    rules          `SchemaRule`: a schema and its kind, and which library reads it
    xml_schemas    XML Schema, by lxml
    json_schemas   JSON Schema, by jsonschema-rs
    avro_schemas   Avro's binary encoding, by fastavro

Laws:

1. A body may be hostile: exploding entities, endless schemas, input that crashes a parser. So schemas and bodies are
   read only in a separate process, with bounds on processor time and memory, which cannot open a file or a socket.
2. A body that exceeds the bounds, or kills two processes in a row, is rejected as not examined (Error -9704). A second
   process is tried because the first may have died by chance. After a death the next body gets a new process. The
   application's process is not affected.
3. When validation itself is impossible (a library is missing, no process can be started), nothing is rejected:
   ValidatorUnavailable is raised, and the messages wait.
4. A schema is never fetched. A schema that refers to anything outside itself or its collection is refused.
5. The receiver validates, when it ingests a message. The verdict is part of the COMMIT, so every fold takes it from
   there. A message that was accepted stays accepted when the schema changes later.
"""
