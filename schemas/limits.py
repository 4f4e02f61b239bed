"""Every bound of the product, with its reason. Units come last in the names.

A bound that a user may change is the default of a setting (`bridge.runtime.settings`); the others are part of the
record formats, or protect memory.
"""

from __future__ import annotations

from typing import Final

NAME_BYTES_MAX: Final = 256
"""UTF-8 bytes of service, contract, message type, queue and database names, as for SQL Server's nvarchar(256)."""

TOPIC_NAME_LENGTH_MAX: Final = 249
"""Kafka's own bound. A queue whose escaped name is longer is refused when it is created."""

HEADER_BYTES_MAX: Final = 4_096
"""One envelope. A Begin block with four names and a key of the greatest length fits; no valid envelope is longer."""

SUFFIX_BYTES_MAX: Final = HEADER_BYTES_MAX - 39 - 2 * 10
"""The repeating end of an envelope: the space after its prefix and two numbers of the greatest length."""

USER_HEADERS_BYTES_MAX: Final = 16_384
"""User headers that travel with a forwarded record. Larger ones are dropped; no known use needs them."""

FORWARD_BYTES_MAX: Final = USER_HEADERS_BYTES_MAX + 1_024
"""Extra room in a forwarded record's envelope: user headers, and the place where it was first written."""

END_WRITERS_MAX: Final = 128
"""Writers whose received counter an END names, the latest ones: as many as fit into an envelope."""

BODY_BYTES_MAX: Final = 960_000
"""One message body. With header and key a record stays below 1,000,000 bytes, the default of librdkafka and broker."""

KEY_BYTES_MAX: Final = 2_048
"""A user's key: it travels with every message of the conversation, and both endpoints keep it."""

ROW_BYTES_MAX: Final = 995_000
"""A row that Spark writes: body, key and headers. With an envelope it stays below librdkafka's 1,000,000 bytes."""

COMMIT_BYTES_MAX: Final = 8_388_608
"""One COMMIT in all its parts: at least eight of the largest bodies. A replay needs no more memory for a COMMIT."""

JOURNAL_PART_BYTES_MAX: Final = 960_000
"""A larger COMMIT is split into parts of this size, which pass with the default settings of broker and client."""

COMMIT_ACK_ENTRIES_MAX: Final = 1_000
"""Acknowledged destinations in one commit; the others are in the next ones. With the longest addresses 280 kB."""

COMMIT_FAULT_ENTRIES_MAX: Final = 1_000
"""Rejected messages whose faults one commit quotes, 2 MB at most. The Errors of further ones have only their number."""

COMMIT_PARTS_MAX: Final = 256
"""Parts that a reader joins into one COMMIT: far more than the largest COMMIT has, and few enough for memory."""

ALARMS_MAX: Final = 1_000
"""Alarms of one partition that the driver has not taken yet; more of them from a corrupt journal add no information."""

COMMIT_BYTES_TARGET: Final = 786_432
"""A group commit closes at this size: larger commits gain nothing, and a recovering owner waits longer for them."""

TRANSACTION_BYTES_MAX: Final = 4_194_304
"""Bodies that one transaction sends. It may join a commit that is nearly full, and both still fit into one COMMIT."""

TRANSACTION_GROUPS_MAX: Final = 64
"""Conversation groups of one transaction: they are rolled back together, and after a crash they are tried together."""

HANDLER_THREADS_MAX: Final = 1_000
"""Handler threads of one reader. Python runs one thread at a time; more parallelism needs processes."""

HANDLER_LEAVING_MS_MAX: Final = 30_000
"""Handlers may run on for this long after another thread of their reader failed; then they count as hung."""

QUEUE_READERS_MAX: Final = 32_767
"""The original's bound for MAX_QUEUE_READERS (behaviour 24). A process or a queue can use fewer."""

COMMIT_GROUPS_MAX: Final = 10_000
"""Transactions in one commit, however large `batch` is set: bounds the work that a crash returns to the handlers."""

COMMIT_MOVE_ENTRIES_MAX: Final = 10_000
"""Endpoints that one commit moves: 3 MB with the longest addresses, which fits beside the largest transactions."""

WRITER_RECORDS_MAX: Final = 1 << 60
"""Records of one writer in a log: its counters, and the numbers of messages, stay below. A log with a million records
a second reaches this in 36,000 years, so larger numbers are a stranger's."""

BATCH_PAIR_ENTRIES_MAX: Final = 1 << 20
"""Homes times targets of a query: its decision reaches a target after all homes, so an owner keeps a note of each pair.
As many as two queues of QUEUE_PARTITIONS_MAX have."""

QUEUE_PARTITIONS_MAX: Final = 1_024
"""Partitions of one queue: each costs a journal, an owner and some files on the broker."""

SESSION_WINDOW_BYTES_MAX: Final = 67_108_864
"""Unacknowledged records of one session per destination partition; beyond it `send` waits, then raises QueueFull."""

SESSION_RECORD_BYTES: Final = 1_342
"""Bytes that a record takes in that window besides its body: the window is full at some 50,000 small messages."""

EMITTER_WINDOW_RECORDS_MAX: Final = 20_000
"""Outputs in flight to one destination: as many records as its owner looks ahead."""

LOOK_AHEAD_RECORDS_MAX: Final = 20_000
"""Records that an owner ingests before they are committed; later ones wait in Kafka."""

LOOK_AHEAD_BYTES_MAX: Final = 67_108_864
"""Bytes of the bodies in an owner's look-ahead: large messages must not fill the memory of a process."""

OUTBOX_RECORDS_MAX: Final = 200_000
"""Outputs that wait for acknowledgement; beyond it an owner delivers no group until some are acknowledged."""

SUFFIX_CACHE_ENTRIES_MAX: Final = 4_096
"""Distinct envelope endings that a decoder remembers; an application has one for each message type and home."""

SUFFIX_SHAPE_ENTRIES_MAX: Final = 4
"""Positions of the group that are tried in Begin endings of one length; more than one is rare."""

MAILBOX_ENTRIES_MAX: Final = 50_000
"""Bounced messages kept at a home partition: all that a session has in flight may come back. The oldest goes first."""

MAILBOX_BYTES_MAX: Final = SESSION_WINDOW_BYTES_MAX
"""Bytes of the bodies in a mailbox, for the same reason as its entries; dropped messages are counted."""

RETURNED_LOOK_RECORDS_MAX: Final = 50_000
"""Latest records of a home partition in which a Spark write looks for returned rows: a full mailbox, about 0.1 s."""

SUCCESSION_ENTRIES_MAX: Final = 100_000
"""Ended conversations of a queue that Spark writes replace: 2 MB per task. Beyond it keys wait until both sides end."""

SPARK_BATCH_BYTES_MAX: Final = 67_108_864
"""Bodies of a batch that Spark receives, approximately: several copies in the driver take half of a 1 GB heap."""

ANSWER_ENTRIES_MAX: Final = 10_000
"""Notices to sessions and answers about closed writers, kept at a home partition; the oldest goes first."""

WRITER_HOLE_ENTRIES_MAX: Final = 16
"""Holes in a writer's counters that a partition tells apart; the oldest two are merged, and their detail is lost."""

WRITER_HOLE_RECORDS_MAX: Final = 1_000_000
"""Acknowledged records of a writer that a log may lack before one record; a record that claims more is not believed."""

NOTICED_WRITERS_MAX: Final = 10_000
"""Writers that a partition remembers having sent a notice; the oldest may get it again."""

WRITER_HORIZON_MS: Final = 30 * 86_400_000
"""A writer that is silent for this long is closed, and forgotten after being closed for as long again."""

WRITER_AHEAD_MS_MAX: Final = 7 * 86_400_000
"""How far a writer id may be ahead of a partition's time: brokers' clocks agree within it (assumption A3)."""

PRUNE_EVERY_MS: Final = 86_400_000
"""Interval between PRUNEs, by the partition's time."""

TIME_LAG_MS_MAX: Final = 3_600_000
"""An owner ingests nothing while the partition's time is older than this. At half this age it commits, to renew it."""

SESSION_IDLE_MS_MAX: Final = 12 * 3_600_000
"""Longest time between two records of a session to one destination, and between the making of its id and the first."""

SESSION_ANSWER_MS_MAX: Final = 24 * 3_600_000
"""An acknowledgement that arrives later than this is ignored."""

SESSION_LOOK_MS_MAX: Final = 3_600_000
"""A session renews its id this long before it must: drivers check the clock far more often."""

TOMBSTONES_MAX: Final = 100_000
"""Conversations that ended before they began, kept until their FIRST is refused or their opener is closed."""

STUB_ENTRIES_MAX: Final = 100_000
"""Stubs of endpoints that moved away, about 50 MB. At this number no further endpoint moves away."""

RELOCATION_HOPS_MAX: Final = 64
"""Moves of one endpoint: each later record of it passes through all of its former places."""

INSTALL_BYTES_MAX: Final = 30_720_000
"""State of an endpoint that moves, 32 records; the next place holds the pieces in memory until it has all."""

SNAPSHOT_CHUNK_BYTES_MAX: Final = 524_288
"""A slice of a state: it passes with the default settings of broker and client."""

SNAPSHOT_CHUNK_ENTRIES_MAX: Final = 1 << 20
"""Chunks of one snapshot: 512 GiB. A stranger's END that claims more is no END."""

SNAPSHOT_RECORD_BYTES_MAX: Final = SNAPSHOT_CHUNK_BYTES_MAX + 1_024
"""A record of a snapshot topic: a slice with the id of its snapshot, or an END."""

SNAPSHOT_PIECE_ENTRIES_MAX: Final = 1_000
"""Endpoints, messages or outputs that a snapshot encodes in one piece: a few milliseconds between other work."""

SNAPSHOT_EVERY_RECORDS: Final = 100_000
"""A snapshot is due after this many records and commits, or four per endpoint if that is more: refolded in 0.2 s."""

SNAPSHOT_EVERY_BYTES: Final = 268_435_456
"""A snapshot is also due after this many bytes of the journal."""

SNAPSHOT_RETRY_MS: Final = 60_000
"""Wait after a snapshot that could not be written."""

VIEW_BUCKETS: Final = 4_096
"""Redis hashes per partition. A hash of up to 128 entries stays packed: half a million open conversations fit."""

VIEW_AHEAD_RECORDS_MAX: Final = 200_000
"""Records that a view reads beyond what the owner has ingested: ten times an owner's look-ahead."""

VIEW_AHEAD_BYTES_MAX: Final = 268_435_456
"""Bytes of the bodies that a view reads ahead: viewing a queue that is never read must not exhaust the memory."""

FOLLOWED_ENTRIES_MAX: Final = 16
"""Partitions of other owners that a reader keeps folded after it searched them for a group: each is a whole state."""
FOLLOWED_BYTES_MAX: Final = VIEW_AHEAD_BYTES_MAX
"""Bytes of the messages that wait in followed partitions; further partitions are folded again for each search."""

VIEW_VALUE_BYTES_MAX: Final = 64
"""A packed endpoint in Redis; with one byte more Redis unpacks the whole hash, which takes ten times the memory."""

UNCOMMITTED_MS_MAX: Final = 200
"""Longest time that ingested data or acknowledgements wait for a commit (protocol.md section 4, `loop`)."""

TIMEOUT_MS_MAX: Final = 2_147_483_647_000
"""A conversation timer or a lifetime: the original's int, in seconds."""

TIME_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999: no record is written later, and nothing is due later."""

ATTEMPTS_MAX: Final = 5
"""Failed attempts in a row after which a conversation group is suspended (behaviour 207)."""

TRY_GROUPS_MAX: Final = 64
"""Groups that are delivered at a time after a crash: few suspects, and enough to share a commit."""
TRY_FIRST_GROUPS_MAX: Final = 64
"""Oldest groups, delivered only as many at a time as there are handlers: one of these groups caused the crash."""

SUSPENSION_REASON_CHARACTERS_MAX: Final = 1_000
"""Characters of a handler's failure in the journal and in snapshots; the log has all of it."""

SUSPENDED_RECORDS_MAX: Final = 1_000_000
"""Messages of suspended conversations that an owner takes in beyond its look-ahead; then the partition waits."""
SUSPENDED_BYTES_MAX: Final = 268_435_456
"""Bytes of the bodies of suspended messages that an owner takes in beyond its look-ahead."""

ERROR_CODE_MAX: Final = 2_147_483_647
"""Code of an Error: the original's int."""

ERROR_DESCRIPTION_CHARACTERS_MAX: Final = 3_000
"""Description of an Error (behaviour 112)."""

SESSION_OVER_ENTRIES_MAX: Final = 10_000
"""Conversations with ids of the caller's choice that a session remembers having ended."""

NAMED_OVER_ENTRIES_MAX: Final = 100_000
"""Conversations with ids of the caller's choice that a partition remembers as over; the oldest goes first."""

CLEANED_ENTRIES_MAX: Final = 100_000
"""Targets that were ended WITH CLEANUP, kept until their initiator is notified; the oldest goes first."""

INSTRUCTION_BYTES_MAX: Final = 16_384
"""An operator's instruction: names, and a description of the greatest length."""

INSTRUCTION_MS_MAX: Final = 600_000
"""An instruction expires after this time: enough to start a worker, and short enough to be remembered by its author."""

INSTRUCTION_ENTRIES_MAX: Final = 10_000
"""Instructions that a process keeps for conversations that it does not own (yet); the oldest goes first."""

XML_DEPTH_ENTRIES_MAX: Final = 128
"""Nested elements in a body that must be XML: as many as the original takes."""

JSON_DEPTH_ENTRIES_MAX: Final = 128
"""Nested objects and arrays in a body that must be JSON: as many as in XML."""

SCHEMA_BYTES_MAX: Final = 262_144
"""Schemas of one collection or message type: they fit into a catalog record and are parsed within milliseconds."""

SCHEMA_DOCUMENTS_ENTRIES_MAX: Final = 64
"""Documents of an XML schema collection; usually each is one namespace."""

COMPILED_SCHEMA_ENTRIES_MAX: Final = 256
"""Compiled schemas that a process keeps; the least recently used one goes."""

VALIDATION_CPU_MS_MAX: Final = 1_000
"""CPU time for validating one body against its schema; honest bodies take far below a millisecond."""

SCHEMA_CPU_MS_MAX: Final = 3_000
"""CPU time for compiling a schema. Both are CPU time, so a busy machine does not use them up."""

VALIDATION_WAIT_MS_MAX: Final = 60_000
"""If the validator process gives no answer for this long, it counts as hung."""

VALIDATION_MEMORY_BYTES_MAX: Final = 536_870_912
"""Total memory of the validator process: far more than the largest honest body needs."""

VALIDATION_RECORDS_MAX: Final = 1_000
"""Bodies in one request to the validator: larger requests are no faster."""

VALIDATION_BYTES_MAX: Final = 1_048_576
"""Bytes of the bodies in one request; one larger body makes a request alone."""

FAULT_CHARACTERS_MAX: Final = 500
"""Characters of a validator's complaint: it goes into a log, and may quote a hostile body."""

ADDRESS_CHARACTERS_MAX: Final = 256
"""Address of a route: the original's nvarchar(256)."""

ROUTE_LIFETIME_MS_MAX: Final = 2_147_483_647_000
"""Lifetime of a route: the original's int, in seconds."""

PENDING_RECORDS_MAX: Final = 1_000_000
"""Rows of undecided batches that a partition keeps before it vetoes attempts: some 450 MB of small rows."""

PENDING_BYTES_MAX: Final = 268_435_456
"""Bytes of the bodies of the undecided rows that a partition keeps."""

BATCH_RECORDS_MAX: Final = 500_000
"""Rows of one batch for one partition: its owner accepts them in one step, which takes 15 µs for each row."""

BATCH_BYTES_MAX: Final = 134_217_728
"""Bytes of the bodies of one batch for one partition, which can hold two batches of a query, or one written twice."""

VETO_ENTRIES_MAX: Final = 10_000
"""Vetoes against attempts of one query, remembered until their batch is decided."""

QUERY_ENTRIES_MAX: Final = 100_000
"""Queries whose last decided batch is remembered; judges forget only closed ones. A new checkpoint is a new query."""

WAY_ENTRIES_MAX: Final = 10_000
"""Combinations of two services and a contract whose queues, levels or warnings are remembered."""

TRANSACTION_RECORDS_MAX: Final = 10_000
"""Steps of one client transaction: one record makes no more outputs than this."""

SAVEPOINT_ENTRIES_MAX: Final = 1_000
"""Savepoints of one transaction: each keeps the list of the earlier steps, so all of them stay below 100 MB."""

RESTING_ENTRIES_MAX: Final = 10_000
"""Groups whose count of fruitless deliveries a reader remembers; above this number it forgets all of them."""

STREAM_STATE_ENTRIES_MAX: Final = 256
"""Partitions of Spark streams whose state a worker process keeps; the least recently used one goes."""

INBOX_RESULT_BYTES_MAX: Final = BODY_BYTES_MAX
"""Result of a message's effects that an inbox keeps: the answer."""

ROUTING_TABLE_ENTRIES_MAX: Final = 1_000_000
"""Keys of a routing table: each router holds the table in memory, and Spark copies it to every worker."""

POOL_KEY_ENTRIES_MAX: Final = 10_000
"""Keys, sessions or places of one pool, each with an open conversation; beyond it the least used are recycled."""

POOL_EVICTED_ENTRIES: Final = POOL_KEY_ENTRIES_MAX // 16
"""Keys that are evicted at a time: finding the least used one means looking at all."""

POOL_CLOSING_ENTRIES_MAX: Final = 50_000
"""Recycled conversations of a pool whose target has not ended them. Beyond it no further one is recycled."""

POOL_LOOK_ENTRIES_MAX: Final = 1_000
"""Recycled conversations that a pool asks about at a time: a home answers within a few milliseconds."""

POOL_ATTEMPTS_MAX: Final = 10
"""Attempts of one send to find a conversation that takes the message (behaviour 225)."""

POOL_VERDICT_MS_MAX: Final = 60_000
"""Time for which a key of an ended conversation sends nothing new: its undelivered messages are sent again first."""

POOL_ASTRAY_MS: Final = 10_000
"""Wait before a pool retries a key that was redirected in a circle, or to a service that does not exist."""

POOL_SLACK_MS: Final = 60_000
"""A pooled conversation's timer fires at most this long after `max_age`, when its sender should have recycled it."""

POOL_SLACK_MS_MIN: Final = 10_000
"""The timer fires at least this long after `max_age`: a slow sender's messages should have arrived by then."""

POOL_PATIENCE_MS: Final = 60_000
"""Interval at which a pool checks a conversation whose target has not answered EndOfStream."""

POOL_CLOSE_MS_MAX: Final = 10_000
"""Default time that closing a pool waits for its targets to end the recycled conversations."""

POOL_STILL_MS_MAX: Final = 2_000
"""Closing a pool waits only this long while no target ends anything: the targets are probably not running."""

POOL_LEASE_MS: Final = 10_000
"""A holder that has not renewed its lease of a named pool for this long counts as gone."""

ROUTER_HOPS_MAX: Final = 8
"""Routers that a conversation passes in a row. No useful setup has more; a loop ends here, with Error 1."""

FORWARD_HOPS_MAX: Final = 10
"""Instances that a message passes in a row. Messages that routes lead in a circle end here."""

CLASSIFY_MS_MAX: Final = 30_000
"""Time for a classifier to look at one message; a slower one counts as hung and is logged."""

ROUTER_ERROR_ENTRIES_MAX: Final = 100
"""Latest failures of a router that are kept for operators: as many as a person reads."""

ROUTER_PROCESS_ENTRIES_MAX: Final = 1_000
"""Processes of one router whose figures are added up."""

ROUTING_TABLE_CHANGE_BYTES_MAX: Final = 524_288
"""Keys and services in one catalog record; a larger change of a table is split into parts that count together."""

ROUTING_TABLE_ROUTERS_ENTRIES_MAX: Final = 64
"""Services whose routers use one table."""

ROUTING_TABLE_BUCKETS: Final = 1_024
"""Buckets of a routing table: a change copies only the buckets that it touches, each a thousandth of the table."""

RECENT_RECORDS_MAX: Final = 4_096
"""Records of a partition that duplicates are compared with: the records that a producer resends are more recent."""
RECENT_BODY_BYTES_MAX: Final = 1_048_576
"""Bytes of the bodies of the records kept for comparison, in addition to the latest read."""

RECENT_KEPT_ENTRIES_MAX: Final = 1_024
"""Digests of the latest records in a snapshot; and older counters whose digests a partition and its snapshots keep."""

RECENT_WRITERS_MAX: Final = 4_096
"""Writers of a partition whose last record is known, however old it is."""

ROUTING_KEY_BYTES_MAX: Final = 2_048
"""A key that a classifier finds in a body, as long as a Kafka key may be here. A longer string is not a key."""
