"""Every bound of the product, with its reason. Units stand last in the names.

A bound that a user may move is the default of a setting (`bridge/settings`); the others are part of the record formats.
"""

from __future__ import annotations

from typing import Final

NAME_BYTES_MAX: Final = 256
"""Service, contract, message type, queue and database names: what the original allows on the wire (nvarchar(256))."""

TOPIC_NAME_LENGTH_MAX: Final = 249
"""Kafka's own bound; a longer escaped name is refused when the queue is created."""

HEADER_BYTES_MAX: Final = 4_096
"""An envelope. Begin blocks with four names of the longest kind and the longest key fit; nothing honest is longer."""

SUFFIX_BYTES_MAX: Final = HEADER_BYTES_MAX - 39 - 2 * 10
"""The part that repeats: what remains of an envelope behind its prefix and two numbers of the longest kind."""

USER_HEADERS_BYTES_MAX: Final = 16_384
"""The user's own Kafka headers that travel with a forwarded record. Larger ones stay behind; nobody needs such."""

FORWARD_BYTES_MAX: Final = USER_HEADERS_BYTES_MAX + 1_024
"""What a forwarded record's envelope has more than another one: user headers, and where it was written first."""

END_WRITERS_MAX: Final = 128
"""Writers of which an END tells how far they were received, the latest ones: as many as fit into an envelope."""

BODY_BYTES_MAX: Final = 960_000
"""A message body. With header and key it stays below librdkafka's and the broker's default of 1,000,000 bytes."""

KEY_BYTES_MAX: Final = 2_048
"""A user's key: it travels with every message of the conversation and is kept by both endpoints."""

ROW_BYTES_MAX: Final = 995_000
"""A row that Spark writes: body, key and headers. With an envelope it stays below librdkafka's default of 1,000,000."""

COMMIT_BYTES_MAX: Final = 8_388_608
"""One COMMIT, whole. It holds at least eight of the largest bodies; a replay needs no more memory than this for one."""

JOURNAL_PART_BYTES_MAX: Final = 960_000
"""A larger COMMIT is cut into parts of this size: they pass with the broker's and the client's default settings."""

COMMIT_PARTS_MAX: Final = 256
"""Parts of a COMMIT that a reader puts together: far more than the largest one has, and no more than fit in memory."""

ALARMS_MAX: Final = 1_000
"""Alarms of one partition that the driver has not taken yet; a journal full of garbage tells nothing new."""

COMMIT_BYTES_TARGET: Final = 786_432
"""A group commit closes at this size: larger ones gain nothing and make a recovering owner wait."""

TRANSACTION_BYTES_MAX: Final = 4_194_304
"""Bodies that one transaction sends. It may join a commit that is nearly full, and still fits into one record."""

TRANSACTION_GROUPS_MAX: Final = 64
"""Conversation groups that one transaction works on: they come back together, and are tried together after a crash."""

HANDLER_THREADS_MAX: Final = 1_000
"""Threads of one reader that call handlers. Python runs one of them at a time; who waits that long needs processes."""

HANDLER_LEAVING_MS_MAX: Final = 30_000
"""So long handlers may go on when another thread of their reader has failed. What takes longer hangs and hides it."""

QUEUE_READERS_MAX: Final = 32_767
"""MAX_QUEUE_READERS: the original's bound (behaviour 24). What a process or a queue can use is less."""

COMMIT_GROUPS_MAX: Final = 10_000
"""Transactions that share one commit, however large `batch` is set: bounds what a crash sends back to the handlers."""

COMMIT_MOVE_ENTRIES_MAX: Final = 10_000
"""Endpoints that one commit moves: 3 MB with addresses of the longest kind, beside transactions of the longest kind."""

QUEUE_PARTITIONS_MAX: Final = 1_024
"""Partitions of one queue: each costs a journal, an owner and some files of the broker."""

SESSION_WINDOW_BYTES_MAX: Final = 67_108_864
"""Unacknowledged records of one session per destination partition; beyond it `send` waits, then raises QueueFull."""

SESSION_RECORD_BYTES: Final = 1_342
"""What a record counts in that window besides its body: it ends at some 50,000 small messages."""

EMITTER_WINDOW_RECORDS_MAX: Final = 20_000
"""Outputs of one destination handed to the producer and not acknowledged: as many as an owner looks ahead."""

LOOK_AHEAD_RECORDS_MAX: Final = 20_000
"""Records that an owner ingests before their commit; the rest waits in Kafka."""

LOOK_AHEAD_BYTES_MAX: Final = 67_108_864
"""Or after so many bytes of bodies: large messages must not fill the memory of a process with many partitions."""

OUTBOX_RECORDS_MAX: Final = 200_000
"""Outputs that wait for their acknowledgement; beyond it an owner hands out no further groups until some are gone."""

SUFFIX_CACHE_ENTRIES_MAX: Final = 4_096
"""Distinct envelope endings that a decoder remembers; an application has as many as message types and homes."""

SUFFIX_SHAPE_ENTRIES_MAX: Final = 4
"""Places of the group that are tried in an envelope's ending of one length: names have other lengths, hardly ever."""

MAILBOX_ENTRIES_MAX: Final = 50_000
"""Bounced messages kept at a home partition: all that a session has on its way may come back. The oldest goes first."""

MAILBOX_BYTES_MAX: Final = SESSION_WINDOW_BYTES_MAX
"""And their bodies, for the same reason; what goes is counted."""

RETURNED_LOOK_RECORDS_MAX: Final = 50_000
"""Last records of a home partition where a write from Spark looks for returned rows: a full mailbox, about 0.1 s."""

SUCCESSION_ENTRIES_MAX: Final = 100_000
"""Conversations of a queue that ended under Spark's writes: 2 MB for each task. Beyond, a key waits for both sides."""

SPARK_BATCH_BYTES_MAX: Final = 67_108_864
"""Bodies of a batch that Spark works on, about: with several copies in its driver, half of a heap of 1 GB at most."""

ANSWER_ENTRIES_MAX: Final = 10_000
"""Notices to sessions, and answers about closed writers, kept at a home partition; the oldest goes first."""

WRITER_HOLE_ENTRIES_MAX: Final = 16
"""Holes in a writer's counters that a partition keeps apart; of what lies between older ones it cannot say any more."""

NOTICED_WRITERS_MAX: Final = 10_000
"""Writers of which a partition remembers that they were told of a gap; the oldest may be told again."""

WRITER_HORIZON_MS: Final = 30 * 86_400_000
"""A writer that was not heard for so long is closed, and forgotten when it has been closed for as long."""

WRITER_AHEAD_MS_MAX: Final = 7 * 86_400_000
"""So far an id may be ahead of a partition's time: brokers' clocks agree within it (assumption A3)."""

PRUNE_EVERY_MS: Final = 86_400_000
"""Writers are pruned so often, by the partition's time."""

TIME_LAG_MS_MAX: Final = 3_600_000
"""An owner ingests nothing while the time by which it judges is older, and commits to renew it at half of it."""

SESSION_IDLE_MS_MAX: Final = 12 * 3_600_000
"""A session's records to a destination follow one another within this time, and the first one the making of its id."""

SESSION_ANSWER_MS_MAX: Final = 24 * 3_600_000
"""An acknowledgement that comes later counts for nothing."""

SESSION_LOOK_MS_MAX: Final = 3_600_000
"""A session renews its id so much earlier than it must: a driver looks at its clock far more often."""

TOMBSTONES_MAX: Final = 100_000
"""Conversations that ended before they began, kept until their FIRST was refused or their opener closed."""

STUB_ENTRIES_MAX: Final = 100_000
"""Endpoints that moved away and whose conversation goes on; beyond it nothing is moved away. About 50 MB."""

RELOCATION_HOPS_MAX: Final = 64
"""Moves of one endpoint: every later record of it walks through all of its places."""

INSTALL_BYTES_MAX: Final = 30_720_000
"""The state of an endpoint that moves, 32 records; the next place holds the pieces in memory until it has all."""

SNAPSHOT_CHUNK_BYTES_MAX: Final = 524_288
"""A slice of a state: it passes with the broker's and the client's default settings."""

SNAPSHOT_RECORD_BYTES_MAX: Final = SNAPSHOT_CHUNK_BYTES_MAX + 1_024
"""A record of a snapshot topic: a slice and who it belongs to, or an END."""

SNAPSHOT_PIECE_ENTRIES_MAX: Final = 1_000
"""Endpoints, messages or outputs that are put into a snapshot at a time: a few milliseconds, then work goes on."""

SNAPSHOT_EVERY_RECORDS: Final = 100_000
"""A snapshot is due after so many records and commits, or four times the endpoints: folded again within 0.2 s."""

SNAPSHOT_EVERY_BYTES: Final = 268_435_456
"""Or after so many bytes of the journal."""

SNAPSHOT_RETRY_MS: Final = 60_000
"""After one that could not be written."""

VIEW_BUCKETS: Final = 4_096
"""Redis hashes per partition. With 128 entries or fewer a hash stays packed: half a million open conversations."""

VIEW_AHEAD_RECORDS_MAX: Final = 200_000
"""Data of a partition that nobody has ingested yet and that a view reads all the same: ten times what owners do."""

VIEW_AHEAD_BYTES_MAX: Final = 268_435_456
"""And the bytes of its bodies: whoever looks at a queue that is never read must not run out of memory."""

FOLLOWED_ENTRIES_MAX: Final = 16
"""Partitions of others that a reader keeps folded once it has looked for a group there: each is a whole state."""
FOLLOWED_BYTES_MAX: Final = VIEW_AHEAD_BYTES_MAX
"""And the bytes of what waits in them; the others are folded anew by each search."""

VIEW_VALUE_BYTES_MAX: Final = 64
"""A packed endpoint in Redis; one byte more and Redis unpacks the whole hash (ten times the memory)."""

UNCOMMITTED_MS_MAX: Final = 200
"""Ingested data or acknowledgements wait at most this long for a commit (protocol.md section 4, `loop`)."""

TIMEOUT_MS_MAX: Final = 2_147_483_647_000
"""Of a conversation timer and of a lifetime: the original's int, in seconds."""

TIME_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999: no record was written later, and nothing is due later."""

ATTEMPTS_MAX: Final = 5
"""After so many attempts in a row that failed a conversation group is suspended (behaviour 207)."""

TRY_GROUPS_MAX: Final = 64
"""Groups that are handed out at a time after a crash: few to suspect, and enough to share a commit."""
TRY_FIRST_GROUPS_MAX: Final = 64
"""So many of the oldest groups are handed out no more at a time than there are handlers: one of them was the last."""

SUSPENSION_REASON_CHARACTERS_MAX: Final = 1_000
"""Of what a handler failed with, in the journal and the snapshots; the log has all of it."""

SUSPENDED_RECORDS_MAX: Final = 1_000_000
"""Messages of suspended conversations that an owner takes in beyond its look-ahead; then the partition waits."""
SUSPENDED_BYTES_MAX: Final = 268_435_456
"""And their bodies."""

ERROR_CODE_MAX: Final = 2_147_483_647
"""Code of an Error: the original's int."""

ERROR_DESCRIPTION_CHARACTERS_MAX: Final = 3_000
"""Description of an Error (behaviour 112)."""

SESSION_OVER_ENTRIES_MAX: Final = 10_000
"""Conversations with ids of the caller's choice of which a session knows that it has ended them."""

NAMED_OVER_ENTRIES_MAX: Final = 100_000
"""Conversations with ids of the caller's choice that a partition remembers as over; the oldest goes first."""

NAMED_OPENER_ENTRIES_MAX: Final = 16
"""Sessions of which a side knows that they have begun it, or what had its id before; the latest ones."""

CLEANED_ENTRIES_MAX: Final = 100_000
"""Targets that were ended WITH CLEANUP, kept until their initiator knows; the oldest goes first."""

INSTRUCTION_BYTES_MAX: Final = 16_384
"""What an operator tells the owners of a queue: names, and a description of the longest kind."""

INSTRUCTION_MS_MAX: Final = 600_000
"""So long it counts: time to start a worker, and too short to be forgotten by whoever gave it."""

INSTRUCTION_ENTRIES_MAX: Final = 10_000
"""Of them that a process keeps in mind, for conversations that are not its own (yet); the oldest goes first."""

XML_DEPTH_ENTRIES_MAX: Final = 128
"""Elements inside of each other in a body that has to be XML: as many as the original takes."""

JSON_DEPTH_ENTRIES_MAX: Final = 128
"""Objects and arrays inside of each other in a body that has to be JSON: as deep as XML."""

SCHEMA_BYTES_MAX: Final = 262_144
"""The schemas of one collection or message type: with room in a catalog record, and read within milliseconds."""

SCHEMA_DOCUMENTS_ENTRIES_MAX: Final = 64
"""Documents of an XML schema collection; each is one namespace as a rule."""

COMPILED_SCHEMA_ENTRIES_MAX: Final = 256
"""Schemas that a process holds ready for the bodies of its messages; the one that was not needed longest goes."""

VALIDATION_CPU_MS_MAX: Final = 1_000
"""Processor time that holding one body against its schema may take; honest ones take far below a millisecond."""

SCHEMA_CPU_MS_MAX: Final = 3_000
"""And reading a schema. Time that others take on a busy machine is not counted in either."""

VALIDATION_WAIT_MS_MAX: Final = 60_000
"""Whoever validates has stopped, rather than works, when there was no answer for so long."""

VALIDATION_MEMORY_BYTES_MAX: Final = 536_870_912
"""Of the process that validates, all of it: far more than the largest honest body needs."""

VALIDATION_RECORDS_MAX: Final = 1_000
"""Bodies in one question to it: more make it no quicker."""

VALIDATION_BYTES_MAX: Final = 1_048_576
"""And bytes of them, unless one alone has more."""

FAULT_CHARACTERS_MAX: Final = 500
"""Of what a validator says of a body; it goes into a log, and the body is a stranger's."""

ADDRESS_CHARACTERS_MAX: Final = 256
"""Address of a route: the original's nvarchar(256)."""

ROUTE_LIFETIME_MS_MAX: Final = 2_147_483_647_000
"""Lifetime of a route: the original's int, in seconds."""

PENDING_RECORDS_MAX: Final = 1_000_000
"""Rows of undecided batches that a partition keeps before it vetoes further attempts: some 450 MB of small ones."""

PENDING_BYTES_MAX: Final = 268_435_456
"""And bytes of their bodies."""

BATCH_RECORDS_MAX: Final = 500_000
"""Rows of one batch for one partition: accepted at once, in which its owner does nothing else, 15 µs for each row."""

BATCH_BYTES_MAX: Final = 134_217_728
"""And bytes of their bodies: a batch that was written twice, or two of a query, are what a partition keeps."""

VETO_ENTRIES_MAX: Final = 10_000
"""Vetoes against attempts of one query that are remembered until their batch is decided."""

QUERY_ENTRIES_MAX: Final = 100_000
"""Queries whose highest decided batch is remembered: for ever where they are judged. A new checkpoint is a new one."""

WAY_ENTRIES_MAX: Final = 10_000
"""Pairs of services, with a contract each, whose queues are remembered."""

TRANSACTION_RECORDS_MAX: Final = 10_000
"""Begins, sends and ends of one client transaction: one record makes no more outputs than this."""

SAVEPOINT_ENTRIES_MAX: Final = 1_000
"""Savepoints of one transaction: each keeps the list of what was done before it, so all of them stay below 100 MB."""

RESTING_ENTRIES_MAX: Final = 10_000
"""Groups of which a reader knows how often in a row nothing was taken of them; above, all are forgotten."""

STREAM_STATE_ENTRIES_MAX: Final = 256
"""Partitions of Spark's streams whose state a worker process keeps; the one used longest ago goes first."""

INBOX_RESULT_BYTES_MAX: Final = BODY_BYTES_MAX
"""What an inbox keeps of a message's effects: its answer."""

ROUTING_TABLE_ENTRIES_MAX: Final = 1_000_000
"""Keys of a routing table: it is in the memory of every router, and with Spark goes to every worker as a whole."""

POOL_KEY_ENTRIES_MAX: Final = 10_000
"""Keys, sessions or places of one pool, each with an open conversation; above, those used least are recycled."""

POOL_EVICTED_ENTRIES: Final = POOL_KEY_ENTRIES_MAX // 16
"""So many of them at a time: who is used least is found by looking at all."""

POOL_CLOSING_ENTRIES_MAX: Final = 50_000
"""Conversations of a pool whose target has not ended them yet. Beyond it none is recycled before it has."""

POOL_LOOK_ENTRIES_MAX: Final = 1_000
"""Of those that so many are asked about at a time: a home answers within a few milliseconds."""

POOL_ATTEMPTS_MAX: Final = 10
"""Attempts of one send to find a conversation that takes the message (behaviour 225)."""

POOL_VERDICT_MS_MAX: Final = 60_000
"""So long nothing new is sent for a key of an ended conversation: what it did not deliver comes back and goes first."""

POOL_ASTRAY_MS: Final = 10_000
"""A key that was redirected in a circle, or to a service that does not exist, is tried again so much later."""

POOL_SLACK_MS: Final = 60_000
"""The timer of a pooled conversation is due at most so much later than its sender recycles it: for one that died."""

POOL_SLACK_MS_MIN: Final = 10_000
"""And so much later at least: what a sender that is merely slow has on its way should be there before."""

POOL_PATIENCE_MS: Final = 60_000
"""A conversation whose target has not answered EndOfStream by then is looked at again, as often as it takes."""

POOL_CLOSE_MS_MAX: Final = 10_000
"""A pool that is closed waits so long for its targets to end what it has recycled, unless it is told how long."""

POOL_STILL_MS_MAX: Final = 2_000
"""And only so long when none of them ends anything: they are away, and there is no use in waiting for them."""

POOL_LEASE_MS: Final = 10_000
"""A holder that has not renewed its lease of a named pool for so long is gone."""

ROUTER_HOPS_MAX: Final = 8
"""Routers that a conversation passes one behind the other. Nobody builds more; a loop ends here, with Error 1."""

CLASSIFY_MS_MAX: Final = 30_000
"""A classifier looks at one message: what takes so long hangs, and is logged."""

ROUTER_ERROR_ENTRIES_MAX: Final = 100
"""What a router could not do, the latest, kept for whoever looks: as much as a person reads."""

ROUTER_PROCESS_ENTRIES_MAX: Final = 1_000
"""Processes of one router whose figures are added up."""

ROUTING_TABLE_CHANGE_BYTES_MAX: Final = 524_288
"""Keys and services in one record of the catalog; a larger change of a table is several, which count together."""

ROUTING_TABLE_ROUTERS_ENTRIES_MAX: Final = 64
"""Services whose routers go by one table."""

ROUTING_TABLE_BUCKETS: Final = 1_024
"""Parts in which a table is held: a change copies those that it touches, a thousand keys of a million."""

RECENT_RECORDS_MAX: Final = 4_096
"""Records of a partition that duplicates are compared with: what a producer sends again lies closer together."""
RECENT_BODY_BYTES_MAX: Final = 1_048_576
"""And so many bytes of their bodies, beside the read that came last."""

RECENT_KEPT_ENTRIES_MAX: Final = 1_024
"""So many of them go into a snapshot, as digests, and so many digests of older ones are known beside it."""

RECENT_WRITERS_MAX: Final = 4_096
"""Writers of a partition whose last record is known, however long ago it came."""

ROUTING_KEY_BYTES_MAX: Final = 2_048
"""A key that a classifier finds in a body, as large as one of Kafka's may be here. A longer one is no key."""
