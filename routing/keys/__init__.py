"""Rules that find the key of a conversation in its first message.

A rule is made from text, so it can be written in the catalog, on a command line and in Spark, and means the same in
each. `key_of` returns the key, a string of at most 2,048 bytes, or raises `NoKey` with the reason. Rules are immutable,
and two rules with the same description find the same keys.

A body is foreign input. It takes time and memory in proportion to its size, whatever it contains: rules are bounded in
depth, size and steps, and a document beyond a bound has no key. An expression is checked and compiled when its rule is
made, never per message; a rule that is itself wrong raises InvalidSettings then, or NotInstalled without its library.

    rule       the common parts of all rules: kind, description, and the bounds of a key
    json_path  one place of a JSON document: the singular queries of RFC 9535
    xml        the element of Service Broker's sample, or the result of an XPath expression
    avro       a field of an Avro datum
    regex      a group of a regular expression over text
    hash       no part of the message: one of several services, by the hash of the conversation's own key

A classifier (`routing.classifiers`) looks up the key in a table of services. A router calls it in a handler, Spark in a
task. A rule reads no catalog: it asks its caller for the writer's schema of an Avro datum (`Lookup`). The caller also
decides where a message without a key goes.
"""
