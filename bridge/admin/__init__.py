"""What administrators and operators do.

    administration   CREATE, ALTER and DROP of queues, services, contracts, types and priorities
    ddl              what each of these statements shares: look, append, look again
    message_types, priorities, routes, routing_tables   statements with rules of their own
    instructions     suspend, resume, skip and end, from any process
    listener         the same in the process that owns the partition
    completion       waiting until the journal shows what became of an instruction
    leaks            sides of conversations that somebody has forgotten
    loss             a partition that halted because its data were deleted goes on without them

An administrator changes the catalog, and readers and senders hear of it within two seconds. An operator writes into
the instruction topic; the owner of the partition obeys, and its journal shows it. So an operator needs no connection
to the process that works, and a decision is never taken by two.

Each refusal has Service Broker's number where one exists, and names the object and the statement that mends it.
"""
