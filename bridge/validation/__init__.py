"""Bodies against their types: NONE, EMPTY, WELL_FORMED_XML, VALID_XML, and by extension JSON Schema and Avro.

A body may be hostile: entities that explode, schemas that never end, a parser that crashes. So bodies are held
against schemas in a process of its own, with bounds on time and memory. When that process dies, the message that
killed it is rejected with Service Broker's Error -9615, and the next one finds a new process.

    validator      asks the process, and starts another one when it has died
    worker         the process: one question, one answer
    rules          which check a type has, and how its schema is read
    xml_schemas    XML Schema, by lxml
    json_schemas   JSON Schema, by jsonschema-rs
    avro_schemas   Avro's binary encoding, by fastavro

Validation happens at the target, when a message is ingested: the verdict is part of the COMMIT, so every fold takes
it from there and no schema is asked twice. A body that was accepted stays accepted when the schema changes later.
"""
