"""The client that begins dialogs: a writer with an id, as a machine without I/O.

A session numbers its records for each destination partition: 0, 1, 2 … The destination takes each number once and in
order. So a session may send everything again after any failure, and nothing is received twice.

    Session       begin, send, end, timers; what is due when the producer has run empty
    Lane          the records for one destination, from the first that Kafka has not acknowledged
    SessionDialog one dialog: which records wait for the BEGIN, for an answer or for an id
    rotation      another id: the old one is closed at each destination, which says how far it was heard
    transactions  several begins, sends and ends that happen together, by way of the transmission queue
    adoption      conversations whose process died go on under the id of another session
    outcome       what became of messages whose sender is gone

An id has a time in it, by Kafka's clock. A destination forgets ids that are old, so a session renews its own in time.
It also takes another one when it was closed by others, or when records of it were deleted unread.

What one side reports as done before another call begins arrives first, whatever way both were sent: directly, in a
transaction, by a handler, a pool or Spark (I22). What cannot be known is reported as unknown, with a token that
answers the question later.
"""
