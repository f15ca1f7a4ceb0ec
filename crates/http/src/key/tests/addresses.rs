//! The address of a client behind proxies.

use std::string::ToString;
use std::vec::Vec;

use tidegate_gate::Network;

use super::super::FoundKey;
use super::super::address::behind;
use super::{Request, policies};

#[test]
fn a_spoofed_address_is_not_believed() {
    let trusted: Vec<Network> = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"]
        .map(|network| Network::parse(network).unwrap())
        .into();
    for (peer, forwarded, client) in [
        ("198.51.100.7", Some("203.0.113.9"), "198.51.100.7"),
        ("10.0.0.1", Some("203.0.113.9"), "203.0.113.9"),
        ("10.0.0.1", Some("6.6.6.6, 203.0.113.9, 10.9.9.9"), "203.0.113.9"),
        ("10.0.0.1", Some("10.0.0.3, 10.0.0.2"), "10.0.0.3"),
        ("10.0.0.1", Some("203.0.113.9:4711"), "203.0.113.9"),
        ("10.0.0.1", Some("[2001:db9::1]:4711"), "2001:db9::1"),
        ("10.0.0.1", Some("[2001:db9::1]"), "2001:db9::1"),
        ("10.0.0.1", Some("203.0.113.9, [2001:db9::1"), "10.0.0.1"),
        ("2001:db8::1", Some("::ffff:203.0.113.9"), "203.0.113.9"),
        ("::ffff:10.0.0.1", Some("203.0.113.9"), "203.0.113.9"),
        ("10.0.0.1", Some("203.0.113.9, unknown"), "10.0.0.1"),
        ("10.0.0.1", Some(""), "10.0.0.1"),
        ("10.0.0.1", None, "10.0.0.1"),
    ] {
        let found = behind(peer.parse().unwrap(), forwarded, &trusted);
        assert_eq!(found.to_string(), client, "{peer} {forwarded:?}");
    }
    let headers = &[("x-forwarded-for", "203.0.113.9")];
    let request = Request { headers, ip: Some("10.0.0.1"), ..Request::default() };
    assert_eq!(request.key("['ip']").unwrap(), "ip:10.0.0.1", "no proxy is trusted");
    let FoundKey::Known(key) =
        request.find(&policies("['ip']", "trusted_proxies = ['10.0.0.0/8']"))
    else {
        panic!()
    };
    assert_eq!(key.unwrap(), "ip:203.0.113.9");
}
