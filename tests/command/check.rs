//! `tidegate check`.

use tidegate::local::RedisServer;

use crate::{Folder, POLICIES};

#[test]
fn check_says_how_many_leases_a_state_has_room_for() {
    let folder = Folder::new();
    folder.write(
        "tight.toml",
        "
[policies.p]
limits = [
  { algorithm = 'concurrency', capacity = 10, time_to_live = '1m', max_leases = 3 },
  { algorithm = 'concurrency', capacity = 5000, time_to_live = '1m' },
  { algorithm = 'concurrency', capacity = 10, time_to_live = '1m' },
  { algorithm = 'fleet_usage', capacity = 10, reserve = '20%', time_to_live = '1m', max_leases = 7 },
]",
    );
    let (code, text, _) = folder.run(&["check", "--policies", "tight.toml"]);
    assert_eq!(code, 0);
    for (limit, room) in [("limit-1", 3), ("limit-2", 4096), ("limit-4", 7)] {
        let line = text.lines().find(|line| line.contains(limit)).unwrap();
        assert!(line.contains(&format!("has room for {room} leases")), "{line}");
    }
    let line = text.lines().find(|line| line.contains("limit-3")).unwrap();
    assert!(!line.contains("room"), "{line}");
}

#[test]
fn check_warns_of_what_nodes_may_do_to_little_use() {
    let folder = Folder::new();
    folder.write(
        "nodes.toml",
        "
[policies.p]
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]
local = { most = 9, time = '1s' }",
    );
    let (code, text, warnings) = folder.run(&["check", "--policies", "nodes.toml"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("p: "), "{text}");
    let expected = "warning: policies.p: `local.most`: expected at most 5, which";
    assert!(warnings.starts_with(expected) && warnings.lines().count() == 1, "{warnings}");
}

#[test]
fn a_key_that_a_client_can_invent_is_warned_about() {
    let folder = Folder::new();
    folder.write(
        "keys.toml",
        "
[policies.p]
key = ['header:x-api-key', 'ip']
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]",
    );
    let (code, text, warnings) = folder.run(&["check", "--policies", "keys.toml"]);
    assert_eq!(code, 0);
    assert!(text.contains("by header x-api-key, else client address"), "{text}");
    let expected =
        "warning: policies.p: `key`: expected a limit that counts by what no client can invent";
    assert!(warnings.starts_with(expected) && warnings.lines().count() == 1, "{warnings}");
    assert!(warnings.contains("found only limits by \"header:x-api-key\""), "{warnings}");
}

#[test]
fn a_policy_file_may_begin_with_a_byte_order_mark() {
    let folder = Folder::new();
    let json = "{\"policies\":{\"p\":{\"limits\":\
                [{\"algorithm\":\"fixed_window\",\"limit\":1,\"period\":\"1s\"}]}}}";
    for text in [POLICIES, json] {
        folder.write("marked", format!("\u{feff}{text}"));
        let (code, _, error) = folder.run(&["check", "--policies", "marked"]);
        assert_eq!((code, error.as_str()), (0, ""));
    }
}

#[test]
fn a_file_without_its_flag_is_told_which_flag_takes_it() {
    let folder = Folder::new();
    for command in ["check", "serve"] {
        for wrong in [&["policies.toml"][..], &["--file", "policies.toml"]] {
            folder.fails(
                &[&[command], wrong].concat(),
                &format!("tidegate {command} [--policies FILE] [OPTIONS]"),
            );
        }
    }
}

#[test]
fn check_validates_shows_and_decides() {
    let folder = Folder::new();
    let (code, text, _) = folder.run(&["check"]);
    assert_eq!(code, 0);
    assert!(text.contains("bursts of 2, then every 1 d; full after 2 d"), "{text}");
    let (code, text, _) = folder.run(&["check", "--policy", "api", "--key", "k", "--cost", "2"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("{\"allowed\":true,\"limit\":2,\"remaining\":0,"), "{text}");
    let server = RedisServer::start().unwrap();
    let check = ["check", "--policy", "api", "--key", "k", "--cost", "2", "--redis", server.url()];
    assert_eq!(folder.run(&check).0, 0);
    let (code, text, _) = folder.run(&check);
    assert_eq!(code, 1, "the state is in Redis");
    assert!(text.starts_with("{\"allowed\":false,"), "{text}");
}
