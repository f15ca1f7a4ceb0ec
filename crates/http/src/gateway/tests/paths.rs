//! Tests of paths that two servers read as two paths. None takes the route of one and gets the answer of the other.

use std::format;

use super::{Gateway, url};

const ROUTES: &str = "
[[routes]]
match = '/login'
upstream = 'http://login'
[[routes]]
match = '/public/*'
upstream = 'http://public'
[[routes]]
match = '/docs/'
upstream = 'http://docs'
[[routes]]
match = '/*'
upstream = 'http://rest'
";

#[test]
fn a_dot_segment_is_refused_however_it_is_written() {
    let mut gateway = Gateway::new(ROUTES);
    for path in [
        "/public/..;/login",
        "/public/..;x=1/login",
        "/public/..;x=1;y=2/login",
        "/public/..%3b/login",
        "/public/..%3Bx/login",
        "/public/%2e%2e;/login",
        "/public/%2e%2e%3bx/login",
        "/public/.;/login",
        "/public/.;x=1",
        "/public/..;",
        "/public/..;/",
        "/..;/..;/login",
        "/public/%252e%252e/login",
        "/public/%25252e./login",
        "/public/..%253b/login",
        "/public/..%252flogin",
        "/public/..%255clogin",
        "/public/a%252f..%252f..%252flogin",
        "/public/%252525252e./login",
    ] {
        assert_eq!(gateway.get(&format!("https://h{path}")), Err(400), "{path}");
    }
}

#[test]
fn a_path_that_takes_another_route_at_a_lenient_server_is_refused() {
    let mut gateway = Gateway::new(ROUTES);
    for path in [
        "/login;x",
        "/login;x=1",
        "/login;",
        "/login%3b",
        "/login;x/",
        "/login%253bx",
        "/;x/login",
        "/logi%256e",
        "/%256cogin",
        "/LOGIN",
        "/%4cogin",
        "/Login;x",
        "/public;x",
        "/public;x/a",
        "/PUBLIC/a",
        "/public%252fa",
        "/public%255ca",
        "/%252fpublic/a",
        "/Docs/",
    ] {
        assert_eq!(gateway.get(&format!("https://h{path}")), Err(400), "{path}");
    }
    for (path, upstream) in [
        ("/login", "http://login"),
        ("/login/", "http://login"), // many servers answer both
        ("/logi%6e", "http://login"),
        ("/docs", "http://docs"),
        ("/docs/", "http://docs"),
        ("/docs/a", "http://rest"),
        ("/public/cars;color=red;doors=4/7", "http://public"),
        ("/cars;color=red", "http://rest"),
        ("/cars%3bcolor=red/", "http://rest"),
        ("/a.b;c/..d/e..", "http://rest"),
        ("/100%25/a%252Fb", "http://rest"),
        ("/%25zz%2525%25", "http://rest"),
        ("/Report.PDF", "http://rest"),
        ("/loginx;y", "http://rest"),
        ("/", "http://rest"),
    ] {
        assert_eq!(gateway.get(&format!("https://h{path}")), url(&format!("{upstream}{path}")));
    }
    let problem = gateway.refuses("https://h/login;x", &[]);
    assert!(problem.body.contains("another route"), "{problem:?}");
}

/// Each decoding of such a path is only two bytes shorter than the one before.
#[test]
fn a_path_that_is_encoded_thousands_of_times_is_decoded_in_one_pass() {
    let mut gateway = Gateway::new(ROUTES);
    let path = format!("/%{}6cogin", "25".repeat(8_000));
    assert_eq!(gateway.get(&format!("https://h{path}")), Err(400));
}
