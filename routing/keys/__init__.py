"""Rules that find the key of a conversation in its first message.

    rule       what every rule has: its name, its text and what it says of a body that does not fit
    json_path  one place of a JSON document: the singular queries of RFC 9535
    xml        an element or attribute of an XML document, by XPath
    avro       a field of an Avro datum
    regex      a group of a regular expression over text
    hash       no key of the message at all: the conversation's own key, as Kafka would place it

A rule is text, so that it can stand in the catalog, in a command line and in Spark, and mean the same in each. It
returns a string of at most 2,048 bytes, or the reason why there is none. A body is foreign input: a rule has bounds
on depth, size and steps, and a document that exceeds them has no key.

A parser that is hostile to speed is not used per message: rules are compiled once, and read as little of a body as
they can.
"""
