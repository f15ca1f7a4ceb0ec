#!lua flags=allow-cross-slot-keys
-- This script goes before swap.lua if the names are of several slots of one master. A Cluster lets no call declare such names, so KEYS is
-- empty, and ARGV begins with the number of names and the names. Redis still checks each command of the script: it
-- refuses those on a slot that the master does not have, or that is on its way to another one.
local all, KEYS, ARGV, names = ARGV, {}, {}, tonumber(ARGV[1])
for i = 1, names do KEYS[i] = all[i + 1] end
for i = names + 2, #all do ARGV[i - names - 1] = all[i] end
