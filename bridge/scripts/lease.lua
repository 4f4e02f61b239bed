-- Take or renew the lease of a named pool, or give it back.
--
-- KEYS[1]   the lease (string)
-- ARGV[1]   the holder, or the process that wants to hold the lease
-- ARGV[2]   duration of the lease in milliseconds; 0 gives it back
--
-- Returns the present holder; nil when there is none.
local held = redis.pcall('GET', KEYS[1]) -- an error when the key is not a string: then there is no holder
if type(held) ~= 'string' then held = nil end
if held and held ~= ARGV[1] then return held end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  return nil
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
