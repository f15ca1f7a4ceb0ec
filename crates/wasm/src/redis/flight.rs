//! The calls that JavaScript makes: each is one command after another, until the call has ended.

use std::collections::VecDeque;

use tidegate_gate::Micros;
use tidegate_tier::authority::Swap;
use tidegate_tier::outage::Fleet;

use super::arguments::Arguments;
use super::call::Call;
use super::reply::Reply;

/// A call that has not ended.
#[derive(Debug)]
pub(super) enum Flight {
    /// Swaps states.
    Swap(Swap, Call),
    /// Announces the limiter to the other nodes, and counts them.
    Announcement(Announcement),
    /// Asks whether Redis answers.
    Ping(Arguments),
}

impl Flight {
    pub(super) fn ping() -> Self {
        Self::Ping(Arguments::of(&["PING"]))
    }

    /// The next command.
    pub(super) fn command(&self) -> Option<&Arguments> {
        match self {
            Self::Swap(_, call) => Some(call.command()),
            Self::Announcement(announcement) => announcement.commands.front(),
            Self::Ping(command) => Some(command),
        }
    }
}

/// The commands by which the host announces itself, under the host's name: see `announce.rs` of the host.
#[derive(Debug)]
pub(super) struct Announcement {
    /// The name of the sorted set: the nodes by the time in ms at which they were last there.
    name: String,
    /// The name of this node, which no other has.
    id: u64,
    /// The commands that are not answered.
    commands: VecDeque<Arguments>,
    knows_time: bool,
}

impl Announcement {
    pub(super) fn new(prefix: &str, id: u64) -> Self {
        let commands = VecDeque::from([Arguments::of(&["TIME"])]);
        Self { name: format!("{prefix}{NAME}"), id, commands, knows_time: false }
    }

    /// Takes the reply to the command. Returns how many nodes there are once the last one is answered.
    pub(super) fn reply(&mut self, reply: Reply) -> Result<Option<u64>, String> {
        self.commands.pop_front();
        match reply {
            Reply::Error(error) => return Err(error),
            Reply::List(time) if !self.knows_time => {
                self.knows_time = true;
                self.announce(now_ms(&time).ok_or(NO_TIME)?);
            }
            _ if !self.knows_time => return Err(NO_TIME.to_owned()),
            Reply::Number(nodes) if self.commands.is_empty() => return Ok(Some(nodes)),
            _ => {}
        }
        if self.commands.is_empty() { Err(NO_COUNT.to_owned()) } else { Ok(None) }
    }

    fn announce(&mut self, now_ms: u64) {
        let life_ms = Fleet::LIFE.0.div_euclid(1_000);
        let [now, gone, keep] = [now_ms, now_ms.saturating_sub(life_ms), life_ms.saturating_mul(2)]
            .map(|ms| ms.to_string());
        let name = &*self.name;
        self.commands.extend([
            Arguments::of(&["ZADD", name, &now, &format!("{:016x}", self.id)]),
            Arguments::of(&["ZREMRANGEBYSCORE", name, "-inf", &gone]),
            Arguments::of(&["PEXPIRE", name, &keep]),
            Arguments::of(&["ZCARD", name]),
        ]);
    }
}

/// What `TIME` has returned: seconds and µs.
fn now_ms(time: &[Reply]) -> Option<u64> {
    let [seconds, us] = time else { return None };
    let ms = Micros(us.number()?).0.div_euclid(1_000);
    Some(seconds.number()?.saturating_mul(1_000).saturating_add(ms))
}

const NAME: &str = "tidegate:hosts";
const NO_TIME: &str = "`TIME` returned something else than a time";
const NO_COUNT: &str = "`ZCARD` returned something else than a number";

#[cfg(test)]
mod tests {
    use super::{Announcement, Reply};

    fn words(announcement: &Announcement) -> String {
        let words = announcement.commands.front().unwrap().iter();
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_node_announces_itself_by_the_clock_of_redis() {
        let mut announcement = Announcement::new("p:", 0xab);
        assert_eq!(words(&announcement), "TIME");
        let time = [&b"1700000000"[..], b"123456"].map(|word| Reply::Bytes(word.to_vec()));
        let mut reply = Reply::List(time.to_vec());
        for command in [
            "ZADD p:tidegate:hosts 1700000000123 00000000000000ab",
            "ZREMRANGEBYSCORE p:tidegate:hosts -inf 1699999990123",
            "PEXPIRE p:tidegate:hosts 20000",
            "ZCARD p:tidegate:hosts",
        ] {
            assert_eq!(announcement.reply(reply), Ok(None));
            assert_eq!(words(&announcement), command);
            reply = Reply::Number(1);
        }
        assert_eq!(announcement.reply(Reply::Number(3)), Ok(Some(3)));
    }

    #[test]
    fn a_reply_that_redis_cannot_make_counts_no_nodes() {
        for reply in
            [Reply::Nil, Reply::List(vec![Reply::Nil, Reply::Nil]), Reply::Error("LOADING".into())]
        {
            assert!(Announcement::new("", 1).reply(reply).is_err());
        }
    }
}
