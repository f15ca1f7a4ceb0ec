//! Callers that go away after they have reserved, and calls that are lost on their way: nothing of them stays behind.
#![expect(clippy::unwrap_used, reason = "a failed unwrap ends its test")]

use tidegate_sim::world::{Act, Event, Script, Setup, Tally, Topology};

/// The kills in one world.
const EACH: usize = 500;

/// What happens around a reservation, until its caller is killed or cancels.
fn ends(topology: Topology, number: u64) -> Vec<Event> {
    let node = usize::try_from(number / 5 % 2).unwrap();
    let asks = |act| Event::Ask { node, key: 0, act };
    let reserve = asks(Act::Reserve { id: number, units: 1 + number % 3, span: 60_000_000 });
    let cancel = asks(Act::Commit(number, 0));
    match topology {
        Topology::Table => {
            let (arrives, lost) = (Event::Deliver(0), Event::Lose(0));
            match number % 5 {
                0 => vec![reserve, arrives, arrives],
                1 => vec![reserve, arrives, lost],
                2 => vec![reserve, arrives, arrives, cancel, lost],
                3 => vec![reserve, arrives, arrives, cancel, arrives, lost],
                _ => vec![reserve, cancel, Event::Deliver(1), arrives, arrives, arrives],
            }
        }
        Topology::Objects => {
            let (send, arrives) = (Event::Send(node), Event::Deliver(0));
            let polls = |then: &[Event]| [&[Event::Poll(0)], then].concat();
            let decides = polls(&[Event::Execute(0), Event::Reply(0)]);
            let decides = [&decides[..], &decides].concat(); // it reads, and then writes
            let asked = [&[reserve, send, arrives], &decides[..]].concat();
            let cancels = [&[cancel, send, arrives], &decides[..], &[arrives]].concat();
            match number % 5 {
                0 => [&asked[..], &[arrives]].concat(),
                1 => [&[reserve, send, arrives], &polls(&[Event::Crash(0, 1)])[..]].concat(),
                2 => [&asked[..], &[Event::Restart(node), Event::Crash(0, 0)]].concat(),
                3 => [&asked[..], &[Event::Lose(0)], &cancels].concat(),
                _ => [&asked[..], &[arrives, cancel, send, Event::Lose(0)]].concat(),
            }
        }
        _ => {
            let (poll, store) = (Event::Poll(node), Event::Execute(0));
            let decides = [poll, store, Event::Reply(0), poll, store, Event::Reply(0)];
            let late = [Event::LoseReply(0), Event::Deadline(0)];
            match number % 5 {
                0 => [&[reserve], &decides[..]].concat(),
                1 => [&[reserve], &decides[..3], &[poll, store, Event::Crash(node, 0)]].concat(),
                2 => vec![reserve, poll, Event::LoseCall(0), Event::Deadline(0)],
                3 => {
                    [&[reserve], &decides[..3], &[poll, store], &late, &[cancel], &decides].concat()
                }
                _ => [&[reserve, Event::Leave(0), cancel], &decides[..]].concat(),
            }
        }
    }
}

/// The world checks after each step that what is held is what was reserved and has not ended, and at the end that
/// nothing is held after the time to live and that all units are back.
fn nothing_stays_behind(topology: Topology, kills: u64, least: u64) {
    let setup = Setup {
        topology,
        policies: vec!["killed".into()],
        nodes: 2,
        linger: 10_000,
        deadline: 20_000,
        most_under_way: 8,
        ttl_margin: 1_000_000,
        ..Setup::default()
    };
    let mut tally = Tally::default();
    for first in (0..kills).step_by(EACH) {
        let mut events = Vec::new();
        for number in first..first + u64::try_from(EACH).unwrap() {
            events.extend(ends(topology, number));
            events.push(Event::Advance(50_000));
        }
        let history = Script { setup: setup.clone(), events }.history().unwrap();
        assert_eq!(history.violation, None, "{topology}");
        tally.merge(&history.tally);
    }
    // each of the two limits counts for itself
    for (situation, least) in [
        ("units were reserved", 2 * least),
        ("a reservation expired", kills / 2),
        ("a reservation was released", kills / 10),
        ("nothing was held in the end", 1),
    ] {
        assert!(
            tally.count(situation) >= least,
            "{topology}: {situation}:
{tally}"
        );
    }
}

#[test]
fn ten_thousand_kills_leave_nothing_behind_at_hosts() {
    nothing_stays_behind(Topology::Hosts, 10_000, 5_000);
}

#[test]
fn ten_thousand_kills_leave_nothing_behind_in_a_table() {
    nothing_stays_behind(Topology::Table, 10_000, 7_000);
}

#[test]
fn kills_and_crashes_leave_nothing_behind_in_objects() {
    nothing_stays_behind(Topology::Objects, 2_500, 2_250);
}
