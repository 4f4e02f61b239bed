"""Routing by Spark: many first messages at once, classified by SQL or by a function over Arrow.

    routing        what is classified, and what becomes of the rows that come back
    frame_table    a routing table that is a frame, read again and joined as a whole
    catalog_table  a routing table of the catalog, the one that routers and `konverse table` use

The decisions are those of `routing.step`: Spark only finds the service. All answers to one conversation group are in
one commit of the queue's owner with what was received, so a job that dies has routed each conversation or none of it.

A row without a service is unclassifiable, and its conversation ends with an Error that carries the reason. A target
that cannot take the conversation is tried again and then suspended; the others go on.
"""
