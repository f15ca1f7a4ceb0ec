//! Two processes of `tidegate serve` lend units of one hot key while something fails: what they grant in all, beside
//! the bound that docs/modes.md states.

use std::time::{Duration, Instant};

use tidegate::local::RedisServer;
use tidegate_tests::{Heard, World};

const CAPACITY: u64 = 200;
/// So few that callers on a slow machine exhaust the key, too.
const PER_SECOND: u64 = 20;
/// How long a host may spend the units that it took.
const TIME: Duration = Duration::from_millis(500);
const POLICIES: &str = "
[policies.hot]
limits = [{ algorithm = 'token_bucket', capacity = 200, rate = '20/s' }]
local = { most = 50, time = '500ms' }
";

/// Two hosts on this Redis.
fn hosts(redis: &RedisServer) -> World {
    World::new((POLICIES, &["hot"]), (2, 2), &["--redis", redis.url()])
}

/// Runs the callers while `disturb` does something. Says what both hosts granted beside the bound, to which
/// `once_more` adds.
fn count(
    fault: &str,
    once_more: u64,
    redis: &RedisServer,
    disturb: impl FnOnce(&World) + Send,
) -> Vec<Heard> {
    let (began, world) = (Instant::now(), hosts(redis));
    world.run(|world| {
        disturb(world);
        world.until_all_decide();
    });
    // the callers have all answers, so all grants lie in this span
    let span = began.elapsed() + TIME;
    let heard = world.heard();
    let granted = heard[0].granted + heard[1].granted;
    let refilled = span.as_micros() * u128::from(PER_SECOND) / 1_000_000;
    let bound = CAPACITY + once_more + u64::try_from(refilled).unwrap();
    println!("{fault}: granted {granted}, bound {bound} in {span:.1?}; {heard:?}");
    assert!(granted <= bound, "{fault}: granted {granted}, bound {bound}; {heard:?}");
    assert_eq!(heard[0].passed + heard[1].passed, 0, "{heard:?}");
    assert!(heard[0].refused + heard[1].refused > 0, "the key was never exhausted: {heard:?}");
    heard
}

#[test]
fn a_host_that_is_killed_and_started_again_loses_units_and_grants_none_twice() {
    count("kill -9 of a host", 0, &RedisServer::start().unwrap(), |world| {
        for _ in 0..3 {
            world.kill(0);
            world.until_all_decide();
            world.start(0);
            world.until_all_decide();
        }
    });
}

#[test]
fn a_host_that_stood_still_does_not_spend_units_that_have_expired() {
    count("SIGSTOP of a host", 0, &RedisServer::start().unwrap(), |world| {
        for _ in 0..2 {
            world.signal(0, "STOP");
            world.wait(2 * TIME);
            world.signal(0, "CONT");
            world.until_all_decide();
        }
    });
}

#[test]
fn hosts_spend_what_they_hold_while_redis_stands_still_and_no_more() {
    let redis = RedisServer::start().unwrap();
    let heard = count("SIGSTOP of Redis", 0, &redis, |world| {
        for turn in 1..3 {
            redis.signal("STOP").unwrap();
            world.until("`on_error` decides", |heard| {
                heard.iter().all(|heard| heard.failed >= 20 * turn)
            });
            world.wait(2 * TIME);
            redis.signal("CONT").unwrap();
            world.until_all_decide();
        }
    });
    assert!(heard.iter().all(|heard| heard.failed >= 40), "{heard:?}");
}

#[test]
fn a_redis_that_loses_everything_grants_the_capacity_once_more() {
    let redis = RedisServer::start().unwrap();
    count("FLUSHALL", CAPACITY, &redis, |_| {
        let client = redis::Client::open(redis.url()).unwrap();
        let () = redis::cmd("FLUSHALL").query(&mut client.get_connection().unwrap()).unwrap();
    });
}
