"""Bodies as columns: `typed(frame, message_type, …)` parses the bodies of one message type by its schema.

The driver fetches the schema from the catalog and maps it to a Spark type when the frame is made. Each task then has a
validator process check its bodies, as owners of queues do, and makes a value of each valid body.

Four laws hold:

1. A schema, or a part of it, that has no type in Spark is refused when the frame is made. The error names the part.
2. A single wrong body must never end a job over a billion rows. Its `value` is null, and its `fault` says why.
3. A body has a fault exactly when the validator finds one, or when its value is valid but does not fit the column.
4. The schema is the one that the catalog has when the frame is made; a stream keeps the schema of its start. A body
   that was accepted under an earlier schema may have a fault under this one.

A `Shape` maps one part of a schema: an Arrow type, and the function that makes its values. Shapes are nested like the
schema. A part that contains itself has no shape, as Spark has no recursive types.

    columns      one message type as the columns `value` and `fault`
    shapes       a shape maps a part of a body: its type, and how a value is made
    json_shapes, avro_shapes, xml_shapes   schemas into shapes
    xml_values   the simple types of XML Schema
"""
