//! How often a world came into each situation that is worth a check.

use std::collections::BTreeMap;
use std::fmt;

use super::topology::Topology;

/// The number of times that each situation was seen, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<&'static str, u64>);

/// The situations of hosts. Every run of some dozens of histories should see each.
const HOSTS: [&str; 44] = [
    "a block was ended",
    "a blocked key was refused",
    "a connection was refused",
    "a contended operation gave up",
    "a deadline passed",
    "a holder gave units back",
    "a holder got units",
    "a partition found no room in a swap",
    "a key was blocked",
    "a key was reset",
    "a lease was refused",
    "a lease was released",
    "a lease was renewed",
    "a listed key was asked about",
    "a load was reported",
    "a lost grant was stored",
    "a node crashed with operations waiting",
    "a node repeated a refusal",
    "a node spent units",
    "a node was stopped",
    "a penalty refused a request",
    "a place in the fleet was refused",
    "a refusal was answered from what was read",
    "a refusal was answered in spite of a failure",
    "a repeated refusal was that of the authority",
    "a repeated swap wrote again",
    "a request was shed",
    "a request was suppressed",
    "a shadow policy was decided by",
    "a record had expired",
    "a sliding window refused a request",
    "a state was carried over",
    "a swap came late",
    "a swap decided several operations",
    "an operation failed on foreign bytes",
    "an operation waited too long",
    "an operation was left out",
    "an operation was one too many",
    "an override was decided by",
    "connections were counted",
    "other bytes were found",
    "the storage lost everything",
    "the storage refused to write",
    "units were refunded",
];

/// The situations of a table. Every run of some hundred histories should see each.
const TABLE: [&str; 14] = [
    "a holder gave units back",
    "a holder got units",
    "a key was blocked",
    "a key was reset",
    "a node decided by the factor",
    "a node repeated a refusal",
    "a node reported a load",
    "a node spent units",
    "a node suppressed a request",
    "a repeated refusal was that of the authority",
    "a repeated refusal was true to the microsecond",
    "a reply came again",
    "callers asked for the limit of a part",
    "units were too old to be reported",
];

/// The situations of objects. Every run of some hundred histories should see each.
const OBJECTS: [&str; 28] = [
    "a corrupt question arrived",
    "a corrupt reply arrived",
    "a crash cost units",
    "a grant was answered before a write that failed",
    "a node repeated a refusal",
    "a node spent units",
    "a node started again",
    "a node was stopped",
    "a question came again",
    "a question found no room",
    "a question was overtaken",
    "a reply arrived",
    "a reply came too late or again",
    "a reply was forgotten",
    "a reply was sent again",
    "a state had expired",
    "a swap decided several operations",
    "a swap failed",
    "an object answered without a write",
    "an object crashed",
    "an object crashed after its write",
    "an object crashed before its write",
    "an object got another revision of its policies",
    "an object had forgotten a partition",
    "an object read what was stored",
    "an operation waited too long",
    "an operation was one too many",
    "units that were stored ahead were granted",
];

/// The situations of nodes that ask by wire alone. Every run of some hundred histories should see each.
const WIRE: [&str; 10] = [
    "a message was corrupt",
    "a question found no room",
    "a question was overtaken",
    "a reply came too late or again",
    "a request was granted",
    "a request was refused",
    "an operation was one too many",
    "no reply came",
    "operations shared a question",
    "the store failed",
];

/// The situations of hosts whose store goes away. Every run of some hundred histories should see each.
const OUTAGE: [&str; 6] = [
    "a deadline passed",
    "a host crashed",
    "a share granted",
    "a share refused",
    "a swap came late",
    "the store granted",
];

/// The situations of reservations.
const RESERVED: [&str; 17] = [
    "a bucket was that of a replay",
    "a commit came after the end",
    "a commit came again",
    "a commit came of what nobody reserved",
    "a commit was above its estimate",
    "a later payer paid",
    "a refund left what is held",
    "a reservation came again",
    "a reservation expired",
    "a reservation found no place",
    "a reservation was committed",
    "a reservation was released",
    "a wait was that of a replay",
    "a window was that of a replay",
    "commits used more than a limit",
    "nothing was held in the end",
    "units were reserved",
];

/// The situations of reservations by wire.
const RESERVED_WIRE: [&str; 7] = [
    "a commit came again",
    "a reservation came again",
    "a reservation was committed",
    "a reservation was refused",
    "no reply came",
    "nothing was held in the end",
    "units were reserved",
];

/// The situations that a topology should come to in which callers reserve.
#[must_use]
pub const fn situations_with_reservations(topology: Topology) -> &'static [&'static str] {
    match topology {
        Topology::Wire => &RESERVED_WIRE,
        Topology::Outage => &[],
        _ => &RESERVED,
    }
}

/// The situations that a topology should come to.
#[must_use]
pub const fn situations(topology: Topology) -> &'static [&'static str] {
    match topology {
        Topology::Hosts => &HOSTS,
        Topology::Table => &TABLE,
        Topology::Objects => &OBJECTS,
        Topology::Wire => &WIRE,
        Topology::Outage => &OUTAGE,
    }
}

impl Tally {
    pub(super) fn add(&mut self, situation: &'static str) {
        *self.0.entry(situation).or_default() += 1;
    }

    /// Adds all that another tally has seen.
    pub fn merge(&mut self, other: &Self) {
        for (situation, count) in &other.0 {
            *self.0.entry(situation).or_default() += count;
        }
    }

    /// How often a situation was seen.
    #[must_use]
    pub fn count(&self, situation: &str) -> u64 {
        self.0.get(situation).copied().unwrap_or(0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(situation, count)| writeln!(f, "{count:>10}  {situation}"))
    }
}
