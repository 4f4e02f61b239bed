-- Take or renew the lease of a named pool, or give it back.
--
-- KEYS[1]   the lease (string)
-- ARGV[1]   who holds it or wants to
-- ARGV[2]   for so many milliseconds; 0 gives it back
--
-- Returns who holds it now; nothing when nobody does.
local held = redis.pcall('GET', KEYS[1]) -- an error when it is no string: then it is nobody's
if type(held) ~= 'string' then held = nil end
if held and held ~= ARGV[1] then return held end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  return nil
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
