//! Tests of what a route says beside its policy: a class, a cost; and of the path of the gateway's health.

use std::format;
use std::string::ToString;

use super::Gateway;
use crate::Served;

#[test]
fn a_route_says_what_its_requests_cost() {
    let routes = "
[[routes]]
match = '/search'
policy = 'p'
upstream = 'http://u'
cost = 2
[[routes]]
match = '/*'
policy = 'p'
upstream = 'http://u'
";
    let mut gateway = Gateway::new(routes);
    gateway.passes("https://h/search");
    assert_eq!(gateway.get("https://h/"), Err(429), "the routes share the limit");
    let mut gateway = Gateway::new(routes);
    gateway.passes("https://h/");
    assert_eq!(gateway.get("https://h/search"), Err(429));
    gateway.passes("https://h/");
    let routes = gateway.policies.gateway().routes();
    assert_eq!(routes[0].to_string(), "/search: by p, at a cost of 2, to http://u");
}

#[test]
fn a_route_says_of_which_class_its_requests_are() {
    let mut gateway = Gateway::new(
        "
[[routes]]
match = '/pay'
policy = 'fleet'
upstream = 'http://u'
class = 'critical'
[[routes]]
match = '/*'
policy = 'fleet'
upstream = 'http://u'
[policies.fleet]
limits = [{ algorithm = 'fleet_usage', capacity = 2, reserve = '50%', time_to_live = '30s' }]
",
    );
    gateway.passes("https://h/");
    assert_eq!(gateway.get("https://h/"), Err(503), "the rest is for the most important class");
    gateway.passes("https://h/pay");
    let routes = gateway.policies.gateway().routes();
    assert_eq!(routes[0].to_string(), "/pay: by fleet, of class critical, to http://u");
}

#[test]
fn health_is_told_at_a_path_beside_the_routes() {
    let routes = "[[routes]]\nmatch = '/*'\nupstream = 'http://u'";
    let mut gateway = Gateway::new(&format!("health_path = '/up'\n{routes}"));
    for (method, path, status) in [("GET", "/up", 200), ("HEAD", "/up", 200), ("POST", "/up", 405)]
    {
        let Served::Response(response) = gateway.send(method, &format!("https://h{path}"), &[])
        else {
            panic!("{method} {path}")
        };
        assert_eq!(response.status, status, "{method} {path}");
    }
    for path in ["/healthz", "/up/", "/up/x", "/%75p", "/v1/check"] {
        assert_eq!(
            gateway.get(&format!("https://h{path}")),
            super::url(&format!("http://u{path}"))
        );
    }
    let both = format!("health_path = '/up'\napi_path = '/_tidegate'\n{routes}");
    let mut gateway = Gateway::new(&both);
    assert_eq!(gateway.get("https://h/up"), Err(200));
    assert_eq!(gateway.get("https://h/_tidegate/healthz"), Err(200));
}
