-- Compares and swaps the states of several partitions, each partition by itself.
--
-- KEYS are the names of all records, the records of one partition behind each other. ARGV has three values for each
-- name: the expected bytes (empty: nothing is stored), the new bytes (empty: no change), and for how many ms
-- Redis must keep them at least (empty: it does already). If some partition has several records, the number of
-- records of each partition follows.
--
-- Returns 0 if every partition was as expected and is stored. Otherwise returns a list with an element for each
-- partition: 0 if it is stored, or the bytes found under each of its names, nil where nothing is stored. If Redis
-- refused to write, its error comes before the bytes; an error alone means that some bytes could not be read.
--
-- An empty value is something stored, by another program. It is never as expected.
--
-- The time that Redis keeps a name only ever grows, whoever writes, so that a host need not set it anew with
-- each write.
local call, n = redis.pcall, #KEYS
local partitions, last, outcomes = #ARGV - 3 * n, 0, nil
local each_has_one = partitions == 0
if each_has_one then partitions = n end

-- Writes one record. Returns nothing, or an error as a table, or something else if other bytes were found.
local function swap(i)
  local name, expected, becomes, keep = KEYS[i], ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  if expected == '' then expected = false end -- as GET says it
  if becomes ~= '' and keep == '' then
    local was = call('SET', name, becomes, 'KEEPTTL', 'GET')
    if was == expected then return nil end
    if was == false then call('DEL', name)
    elseif type(was) == 'string' then call('SET', name, was, 'KEEPTTL') end
    return was or true
  end
  local was = call('GET', name)
  if was ~= expected then return was or true end
  if becomes == '' then return nil end
  local is_kept = was and call('PTTL', name) >= tonumber(keep)
  local set = is_kept and call('SET', name, becomes, 'KEEPTTL') or call('SET', name, becomes, 'PX', keep)
  return set.err and set
end

-- Takes the write of one record back.
local function undo(i)
  local expected, becomes = ARGV[3 * i - 2], ARGV[3 * i - 1]
  if becomes == '' then return end
  if expected == '' then call('DEL', KEYS[i]) else call('SET', KEYS[i], expected, 'KEEPTTL') end
end

-- An error as Redis 7 says it. Redis 6 begins with its place, as in "@user_script: 33: -READONLY …", so the
-- host would not know the error by its first word.
local function plain(failure)
  local said = string.gsub(failure.err, '^@%S+ %d+: %-?', '')
  return { err = said }
end

-- The bytes of a partition whose records are not all written.
local function found(first, failure)
  local bytes = { type(failure) == 'table' and plain(failure) or nil }
  for i = first, last do
    local value = call('GET', KEYS[i])
    if type(value) == 'table' then return { plain(value) } end
    bytes[#bytes + 1] = value
  end
  return bytes
end

for partition = 1, partitions do
  local first, outcome = last + 1, 0
  last = last + (each_has_one and 1 or tonumber(ARGV[3 * n + partition]))
  for i = first, last do
    local failure = swap(i)
    if failure then
      for written = first, i - 1 do undo(written) end
      outcome = found(first, failure)
      break
    end
  end
  if outcome ~= 0 and not outcomes then
    outcomes = {}
    for before = 1, partition - 1 do outcomes[before] = 0 end
  end
  if outcomes then outcomes[partition] = outcome end
end
return outcomes or 0
