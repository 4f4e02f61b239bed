"""Statements of administrators (CREATE, ALTER, DROP) and commands of operators (suspend, resume, skip, end and so on).

`broker.admin` is an `Administration`, `broker.operations` an `Operations`. The `konverse` command calls their methods.

    administration   CREATE, ALTER and DROP of every kind of object
    ddl              the loop behind each statement: check the catalog, append the change, check again
    routing_tables   changes of routing tables, in parts where a change is larger than a record
    queue_removal    DROP QUEUE: what forbids it, and the deletion of the topics
    operations       the commands of operators
    instructions     writes a command for the owner of a partition, and finds the conversations that it means
    listener         carries out instructions in the process that owns the partition
    completion       waits until the journal shows the result of an instruction
    leaks            lists conversations, finds forgotten ones, and ends these
    loss             lets a halted partition go on without deleted data that its journal needs

Two ways lead from here to a queue. An administrator changes the catalog (`bridge.catalog`), and readers and senders
notice within two seconds. An operator writes an instruction to the instruction topic of the instance; the process that
owns the partition reads the topic, puts the command into its next COMMIT, and the operator sees it in the journal.

Laws:

1. Only the owner of a partition decides there. An operator never writes to a journal, so no decision is made twice,
   and an operator needs no connection to the process that works. `accept_loss` is no exception: it claims the
   partition first.
2. An instruction is checked before it is written, and again by the owner. RESUME and SKIP name the message that waits
   first, so an instruction is not carried out on a conversation that has changed since.
3. An instruction counts for ten minutes, by Kafka's time. When the owner has not carried it out within the operator's
   timeout, the outcome is unknown, not failed: OutcomeUnknown.
4. A change of the catalog is checked again whenever another administrator's change came first, before it is appended
   again.
5. An object that another one uses cannot be dropped, and a queue cannot be dropped while conversations live on it,
   unless it is forced.
6. Looking never disturbs: `suspended`, `conversations`, `leaked` and `lost` read logs, and claim nothing.

Each refusal has Service Broker's number where one exists, and names the object and the statement that mends it.
"""
