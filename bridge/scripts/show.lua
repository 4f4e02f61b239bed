-- Make the view of one partition say what its owner verified, unless it already says something newer.
--
-- KEYS[1]      header (hash): incarnation, claim, journal, owner, unread, open, complete
-- KEYS[2 ...]  buckets (hashes): field = conversation + role, value = journal offset (8 bytes) + packed endpoint
-- ARGV[1..6]   incarnation, claim offset, journal offset, owner, unread, open endpoints
-- ARGV[7]      'first': forget the whole view before (KEYS are all buckets), 'more': further rows of a whole view,
--              'last': and these are the last, 'some': only what has changed
-- ARGV[8]      number of rows; then per row: place of its bucket in KEYS, field, value without the offset;
--              then per forgotten endpoint: place of its bucket in KEYS, field
--
-- Returns 1 when written, 0 when the view is newer (a zombie wrote), -1 when the view must be written whole first.
local header = redis.pcall('HMGET', KEYS[1], 'incarnation', 'claim', 'journal', 'complete')
local claim, journal, how = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[7]
local shown_claim, shown_journal = tonumber(header[2] or nil), tonumber(header[3] or nil)
local same = header[1] == ARGV[1] and shown_claim and shown_journal -- else it is missing, of another queue, or garbage
if same and shown_claim > claim then return 0 end
if same and shown_claim == claim and shown_journal > journal then return 0 end
if how == 'first' then
  for i = 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
elseif not same or shown_claim < claim then
  return -1
elseif how == 'some' and header[4] ~= '1' then
  return -1
end
local offset = struct.pack('>I8', journal)
local at = 9
for _ = 1, tonumber(ARGV[8]) do
  redis.call('HSET', KEYS[tonumber(ARGV[at])], ARGV[at + 1], offset .. ARGV[at + 2])
  at = at + 3
end
while at < #ARGV do
  redis.call('HDEL', KEYS[tonumber(ARGV[at])], ARGV[at + 1])
  at = at + 2
end
local complete = '0'
if how == 'last' or how == 'some' then complete = '1' end
redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'claim', ARGV[2], 'journal', ARGV[3], 'owner', ARGV[4],
  'unread', ARGV[5], 'open', ARGV[6], 'complete', complete)
return 1
