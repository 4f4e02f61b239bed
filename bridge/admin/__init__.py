"""Statements of administrators (CREATE, ALTER, DROP) and commands of operators (suspend, resume, skip, end and so on).

`broker.admin` is an `Administration`, `broker.operations` an `Operations`. The `konverse` command calls their methods.

    administration   CREATE, ALTER and DROP of every kind of object
    ddl              the loop behind each statement: check the catalog, append the change, check again
    routing_tables   changes to routing tables; a change larger than one record is split into parts
    queue_removal    DROP QUEUE: what forbids it, and the deletion of the topics
    operations       the commands of operators
    instructions     writes commands for the owners of partitions, and finds the conversations that they apply to
    listener         carries out instructions in the process that owns the partition
    completion       waits until the journal shows the result of an instruction
    leaks            lists conversations, and finds the leaked ones, which their applications have forgotten
    rights           the Kafka rights of each kind of process, for `konverse acl`
    loss             lets a halted partition continue without the deleted data that its journal needs

A change reaches a queue in one of two ways. An administrator changes the catalog (`bridge.catalog`), and readers and
senders notice within two seconds. An operator writes an instruction to the instruction topic of the instance; the
process that owns the partition reads the topic and puts the command into its next COMMIT, which the operator's process
then finds in the journal.

Laws:

1. Only the owner of a partition makes decisions for it. An operator never writes to a journal, so no decision is made
   twice, and an operator needs no connection to the owner's process. `accept_loss` is no exception: it claims the
   partition first.
2. An instruction is checked before it is written, and again by the owner. RESUME and SKIP name the first waiting
   message, so they are not carried out on a conversation that has changed since.
3. An instruction is valid for ten minutes, by Kafka's time. When the owner has not carried it out within the operator's
   timeout, the outcome is unknown, not failed: OutcomeUnknown.
4. When another administrator's change to the catalog came first, a change is checked again before it is appended again.
5. An object that another one uses cannot be dropped. A queue cannot be dropped while conversations live on it, unless
   the drop is forced.
6. Reading disturbs no owner: `suspended`, `conversations`, `leaked` and `lost` read logs, and claim nothing.

Each error has Service Broker's number where one exists, and names the object and the statement that fixes it.
"""
