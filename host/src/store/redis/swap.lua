-- Compares and swaps the states of several homes, each home by itself.
--
-- KEYS are the names of all slices, the slices of one home behind each other. ARGV has three values for each
-- name: first all expected bytes (empty: nothing is stored), then all new bytes (empty: no change), then all
-- times to live in ms. If some home has several slices, the number of slices of each home follows.
--
-- Returns 0 if every home was as expected and is stored. Otherwise returns a list with an element for each
-- home: 0 if it is stored, or the bytes found under each of its names. If Redis refused to write, its error
-- comes before the bytes; an error alone means that a state could not be read, or not all were written.
local call, n = redis.pcall, #KEYS
local homes, at, outcomes = #ARGV - 3 * n, 0, nil
local each_has_one = homes == 0
if each_has_one then homes = n end

-- An error as a table, or the bytes.
local function get(name)
  return call('GET', name) or ''
end

local function refused(first, last, failure)
  local found = { failure }
  for i = first, last do
    local value = get(KEYS[i])
    if type(value) == 'table' then return { value } end
    found[#found + 1] = value
  end
  return found
end

local function swap(first, last)
  for i = first, last do
    if get(KEYS[i]) ~= ARGV[i] then return refused(first, last) end
  end
  local is_first = true
  for i = first, last do
    if ARGV[n + i] ~= '' then
      local set = call('SET', KEYS[i], ARGV[n + i], 'PX', ARGV[2 * n + i])
      if set.err then
        if is_first then return refused(first, last, set) end
        return { set }
      end
      is_first = false
    end
  end
  return 0
end

for home = 1, homes do
  local first = at + 1
  at = at + (each_has_one and 1 or tonumber(ARGV[3 * n + home]))
  local outcome = swap(first, at)
  if outcome ~= 0 and not outcomes then
    outcomes = {}
    for before = 1, home - 1 do outcomes[before] = 0 end
  end
  if outcomes then outcomes[home] = outcome end
end
return outcomes or 0
