-- Make the mirror of a database's catalog say what its journal says at a position, unless it says something newer.
--
-- KEYS[1]      the mirror (hash)
-- ARGV[1..3]   id of the catalog's topic, position in its journal, number of objects
-- ARGV[4]      a newer position that is not believed, or nothing
-- ARGV[5 ...]  per object: field, value
--
-- Returns 1 when written, 0 when the mirror says something newer.
local shown = redis.pcall('HMGET', KEYS[1], 'catalog', 'journal') -- an error when it is no hash: nothing is found in it
local journal = tonumber(shown[2] or nil)
if shown[1] == ARGV[1] and journal and journal > tonumber(ARGV[2]) and shown[2] ~= ARGV[4] then return 0 end
redis.call('UNLINK', KEYS[1])
redis.call('HSET', KEYS[1], 'catalog', ARGV[1], 'journal', ARGV[2], 'objects', ARGV[3])
for at = 5, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
end
return 1
