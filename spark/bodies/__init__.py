"""Bodies as columns: `typed(frame, message_type, …)` reads them by the schema that the catalog has.

    columns      one message type as a column `value`, and the reason where a body has none
    shapes       what a part of a body becomes: a type of Spark, and how a value is made
    json_shapes, avro_shapes, xml_shapes   schemas into shapes
    xml_values   the simple types of XML Schema

A schema that has no counterpart in Spark is refused by the part that has none. A body that does not fit its schema
makes no error: its `value` is null and its `fault` says why, as one wrong message must not end a job over a billion.

Schemas are those of now. What was accepted under an earlier one may have a fault under the present one.
"""
