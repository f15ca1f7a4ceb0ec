//! How many nodes there are: a limiter under `on_error = "local"` announces itself to the others, and counts them.

use std::cell::OnceCell;

use tidegate_gate::Micros;
use tidegate_tier::outage::Fleet;

use super::arguments::Arguments;
use super::reply::Reply;
use super::slot::slot;

/// The name under which the host announces itself: see `announce.rs` of the host. It is a sorted set: the nodes by the time in ms at
/// which they were last there.
const NAME: &str = "tidegate:hosts";

/// What the host does by five commands, in a script, because every client sends a script to the master of its name.
const ANNOUNCE: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(ms) return string.format('%.0f', ms) end
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - ARGV[2]))
redis.call('PEXPIRE', KEYS[1], text(2 * ARGV[2]))
return redis.call('ZCARD', KEYS[1])
";

thread_local! {
    /// The name of this process.
    static ID: OnceCell<u64> = const { OnceCell::new() };
}

/// The name of this process, which no other has: the first of these random numbers. With all its limiters it is one node.
pub(super) fn id(random: u64) -> u64 {
    ID.with(|id| *id.get_or_init(|| random))
}

/// This node among the others.
#[derive(Debug)]
pub(super) struct Presence {
    /// The [`id`] of the process.
    id: u64,
    /// The name of the set.
    name: String,
    fleet: Fleet,
    /// When to announce the node; `None` while it is done, or if the policy needs no number of nodes.
    announce_at: Option<Micros>,
}

impl Presence {
    pub(super) fn new(id: u64, prefix: &str, is_for_policy: bool) -> Self {
        let announce_at = is_for_policy.then_some(Micros::ZERO);
        Self { id, name: format!("{prefix}{NAME}"), fleet: Fleet::default(), announce_at }
    }

    /// The slot of a Cluster to announce the node in, and the command, if it is due.
    pub(super) fn poll(&mut self, at: Micros) -> Option<(u16, Arguments)> {
        self.announce_at.take_if(|due| *due <= at)?;
        let mut command = Arguments::of_script("EVAL", ANNOUNCE, 1);
        let life_ms = Fleet::LIFE.0.div_euclid(1_000).to_string();
        for word in [&*self.name, &format!("{:016x}", self.id), &life_ms] {
            command.push(word.as_bytes());
        }
        Some((slot(self.name.as_bytes()), command))
    }

    /// When the next announcement is due.
    pub(super) const fn poll_timeout(&self) -> Option<Micros> {
        self.announce_at
    }

    /// An announcement has ended. Without a count in the reply the last one holds.
    pub(super) fn announced(&mut self, reply: Option<&Reply>, at: Micros) {
        if let Some(Reply::Number(count)) = reply {
            self.fleet.handle_count(*count, at);
        }
        self.announce_at = Some(Micros(at.0.saturating_add(Fleet::EVERY.0)));
    }

    /// How many nodes there are; `None` until the others must have counted this one.
    pub(super) fn nodes(&self) -> Option<u64> {
        self.fleet.nodes()
    }

    /// Ends the announcements.
    pub(super) const fn close(&mut self) {
        self.announce_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::{Micros, Presence, Reply};

    #[test]
    fn a_node_announces_itself_under_the_name_of_the_hosts() {
        let mut presence = Presence::new(0xab, "p:", true);
        let (_, command) = presence.poll(Micros(7)).unwrap();
        let words: Vec<&[u8]> = command.iter().collect();
        assert_eq!(words[2..], [&b"1"[..], b"p:tidegate:hosts", b"00000000000000ab", b"10000"]);
        assert!(presence.poll(Micros(7)).is_none(), "one is under way");
        presence.announced(Some(&Reply::Number(3)), Micros(8));
        assert_eq!((presence.nodes(), presence.poll_timeout()), (None, Some(Micros(2_000_008))));
        presence.announced(Some(&Reply::Number(3)), Micros(4_000_008));
        assert_eq!(presence.nodes(), Some(3));
    }

    #[test]
    fn a_reply_that_redis_cannot_make_counts_no_nodes() {
        let replies =
            [Reply::Zero, Reply::Nil, Reply::List(vec![]), Reply::Error("LOADING".into())];
        for reply in replies.iter().map(Some).chain([None]) {
            let mut presence = Presence::new(1, "", true);
            presence.announced(reply, Micros(0));
            assert_eq!(presence.nodes(), None);
        }
    }

    #[test]
    fn a_policy_that_needs_no_number_announces_nothing() {
        let mut presence = Presence::new(1, "", false);
        assert!(presence.poll(Micros(u64::MAX)).is_none());
    }
}
