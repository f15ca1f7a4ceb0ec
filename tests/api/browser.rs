//! A page behind the gateway in a real browser, which ChromeDriver drives.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tidegate_tests::Served;
use tokio::runtime::Runtime;

use crate::gateway::start_with;
use crate::held::{later, wait_for};

/// The bucket fills slowly, so that no test depends on its speed.
const POLICIES: &str = r#"
auth = "none"
api_path = "/_tidegate"
routes = [
  { match = "/welcome/*", upstream = "http://UPSTREAM" },
  { match = "/site/*", policy = "pages", upstream = "http://UPSTREAM" },
  { match = "/live/*", policy = "live", upstream = "http://UPSTREAM" },
]

[policies.pages]
key = ["cookie:sid"]
limits = [{ algorithm = "token_bucket", capacity = 2, rate = "2/d" }]

[policies.live]
key = ["cookie:sid"]
limits = [{ algorithm = "connections", limit = 1, expiry = "1h" }]
"#;

/// A browser with an empty profile.
struct Browser {
    driver: Child,
    _output: BufReader<ChildStdout>,
    runtime: Runtime,
    client: Client,
    _profile: TempDir,
}

impl Browser {
    fn start() -> Self {
        let profile = tempdir().unwrap();
        let mut driver = Command::new("chromedriver");
        let mut driver =
            driver.arg("--port=0").stdout(Stdio::piped()).spawn().unwrap_or_else(|error| {
                panic!("chromedriver: {error}; `cargo xtask test system` installs it")
            });
        let mut output = BufReader::new(driver.stdout.take().unwrap());
        let port = port(&mut output);
        let runtime = Runtime::new().unwrap();
        let folder = format!("--user-data-dir={}", profile.path().display());
        let arguments = [&ARGUMENTS[..], &[&folder]].concat();
        let capabilities = json!({ "goog:chromeOptions": { "args": arguments } });
        let Value::Object(capabilities) = capabilities else { unreachable!() };
        let client = runtime.block_on(
            ClientBuilder::new(HttpConnector::new())
                .capabilities(capabilities)
                .connect(&format!("http://127.0.0.1:{port}")),
        );
        let client = client.unwrap_or_else(|error| {
            let _ = driver.kill(); // the error says why no browser started
            panic!("{error}")
        });
        Self { driver, _output: output, runtime, client, _profile: profile }
    }

    fn visit(&self, served: &Served, path: &str) -> String {
        self.runtime.block_on(self.client.goto(&format!("{}{path}", served.url))).unwrap();
        self.text()
    }

    fn reload(&self) -> String {
        self.runtime.block_on(self.client.refresh()).unwrap();
        self.text()
    }

    /// What the page shows.
    fn text(&self) -> String {
        self.runtime.block_on(async {
            self.client.find(Locator::Css("body")).await.unwrap().text().await.unwrap()
        })
    }

    /// Runs a script in the page, which calls `done` with its result.
    fn run(&self, script: &str) -> Value {
        let script = format!("const done = arguments[arguments.length - 1];{script}");
        self.runtime.block_on(self.client.execute_async(&script, Vec::new())).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.client.clone().close()); // ends the browser, if it still runs
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A container needs the first two. The others keep the browser from asking servers of its maker.
const ARGUMENTS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// The port that ChromeDriver announces.
fn port(output: &mut impl std::io::BufRead) -> u16 {
    let mut lines = output.lines().map(Result::unwrap);
    let port = lines.find_map(|line| {
        line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
    });
    port.expect("ChromeDriver announces its port")
}

/// The time that an advice names, such as "Please try again in 12 hours.".
fn wait_of(advice: &str) -> Duration {
    let (_, wait) = advice.split_once("try again in ").unwrap_or_else(|| panic!("{advice}"));
    let words: Vec<&str> = wait.split_whitespace().collect();
    let seconds = match words[1].trim_end_matches(['s', '.']) {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        unit => panic!("{unit}: {advice}"),
    };
    Duration::from_secs(words[0].parse::<u64>().unwrap() * seconds)
}

#[test]
fn a_page_is_limited_says_when_to_come_back_and_comes_back() {
    let (served, upstream) = start_with(POLICIES, None);
    let browser = Browser::start();
    let shown = "A page of the upstream";
    assert_eq!(browser.visit(&served, "/welcome/page"), shown); // sets the cookie
    assert_eq!(browser.visit(&served, "/site/page"), shown);
    assert_eq!(browser.reload(), shown);
    let pages = upstream.seen();
    let refused = browser.reload();
    assert!(refused.contains("429") && refused.contains("Too many requests"), "{refused}");
    assert_eq!(upstream.seen(), pages, "the upstream is not asked");
    let wait = wait_of(&refused);
    later(&served, wait / 2);
    let refused = browser.reload();
    assert!(wait_of(&refused) <= wait / 2 + Duration::from_secs(60), "{refused}");
    later(&served, wait_of(&refused));
    assert_eq!(browser.reload(), shown);
}

/// Opens a WebSocket, and is done with its first message or with `refused`.
const OPEN: &str = "
    const socket = new WebSocket(`ws://${location.host}/live/socket`);
    socket.onopen = () => socket.send('hello');
    socket.onmessage = ({ data }) => {
      window.socket = socket;
      done(data);
    };
    socket.onerror = () => done('refused');";

#[test]
fn a_websocket_of_a_page_is_counted_until_the_page_closes_it() {
    let (served, _upstream) = start_with(POLICIES, None);
    let browser = Browser::start();
    browser.visit(&served, "/welcome/page");
    let live =
        || served.api.get("/_tidegate/v1/keys/live/cookie:sid:visitor", &[]).get("remaining") == 0;
    assert!(!live());
    assert_eq!(browser.run(OPEN), "hello");
    assert!(live());
    assert_eq!(browser.run(OPEN), "refused");
    assert_eq!(browser.run("socket.onclose = () => done('closed'); socket.close();"), "closed");
    wait_for(&served, "released", 1);
    assert!(!live());
    assert_eq!(browser.run(OPEN), "hello");
    assert_eq!(browser.run(OPEN), "refused");
    browser.visit(&served, "/welcome/page"); // the page that held it has gone
    wait_for(&served, "released", 2);
    assert_eq!(browser.run(OPEN), "hello");
}
