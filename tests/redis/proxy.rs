//! A network between a store and its Redis. It delays bytes, loses them, and leads to other servers.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::local::RedisServer;

/// A TCP address that leads to a Redis.
pub struct Proxy {
    pub url: String,
    network: Arc<Mutex<Network>>,
}

#[derive(Clone, Copy)]
struct Line {
    delay: Duration,
    per_byte: Duration,
}

#[derive(Default)]
struct Network {
    /// The socket that new connections lead to.
    target: PathBuf,
    /// The number of connections so far.
    connections: usize,
    /// The numbers of the connections that lose all bytes.
    dead: HashSet<usize>,
    /// A request that contains these bytes: its answer, and all later bytes of its connection, are lost.
    unanswered: Option<Vec<u8>>,
}

impl Proxy {
    /// A network that takes `delay` in each direction.
    pub fn start(server: &RedisServer, delay: Duration) -> Self {
        Self::serve(server, Line { delay, per_byte: Duration::ZERO })
    }

    /// A network on which each byte of an answer takes this long.
    pub fn thin(server: &RedisServer, per_byte: Duration) -> Self {
        Self::serve(server, Line { delay: Duration::ZERO, per_byte })
    }

    fn serve(server: &RedisServer, line: Line) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let target = socket(server);
        let network = Arc::new(Mutex::new(Network { target, ..Network::default() }));
        let served = Arc::clone(&network);
        thread::spawn(move || serve(&listener, &served, line));
        Self { url, network }
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, server: &RedisServer) {
        self.network.lock().unwrap().target = socket(server);
    }

    /// From now on the open connections lose all bytes, and stay open.
    pub fn swallow_on_open_connections(&self) {
        let mut network = self.network.lock().unwrap();
        network.dead = (1..=network.connections).collect();
    }

    /// Loses the answers to requests that contain these bytes, and all later bytes of their connections.
    pub fn lose_answers_to(&self, bytes: &[u8]) {
        self.network.lock().unwrap().unanswered = Some(bytes.to_owned());
    }

    /// Loses no more answers on new connections.
    pub fn lose_nothing(&self) {
        self.network.lock().unwrap().unanswered = None;
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.network.lock().unwrap().connections
    }
}

fn socket(server: &RedisServer) -> PathBuf {
    server.url().strip_prefix("redis+unix://").unwrap().into()
}

/// Carries bytes until the test ends.
fn serve(listener: &TcpListener, network: &Arc<Mutex<Network>>, line: Line) {
    while let Ok((client, _)) = listener.accept() {
        client.set_nodelay(true).unwrap();
        let (number, target) = {
            let mut network = network.lock().unwrap();
            network.connections += 1;
            (network.connections, network.target.clone())
        };
        let Ok(server) = UnixStream::connect(target) else { continue };
        let (requests, answers) = (Arc::clone(network), Arc::clone(network));
        let (to_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || {
            carry(client, to_server, Line { per_byte: Duration::ZERO, ..line }, |bytes| {
                let mut network = requests.lock().unwrap();
                let passes = !network.dead.contains(&number);
                if network.unanswered.as_ref().is_some_and(|lost| contains(bytes, lost)) {
                    network.dead.insert(number); // this request still passes
                }
                passes
            });
        });
        thread::spawn(move || {
            carry(server, to_client, line, |_| !answers.lock().unwrap().dead.contains(&number));
        });
    }
}

/// Carries bytes in one direction. Bytes that `passes` refuses are lost.
fn carry(
    mut from: impl Read,
    mut to: impl Close + Send + 'static,
    line: Line,
    passes: impl Fn(&[u8]) -> bool,
) {
    let (sender, under_way) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, bytes) in under_way {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let _ = send(&mut to, &bytes, line.per_byte); // the other side may be closed
        }
        to.close();
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..length];
        if passes(bytes) {
            let _ = sender.send((Instant::now() + line.delay, bytes.to_owned())); // the other side may be closed
        }
    }
}

fn send(to: &mut impl Write, bytes: &[u8], per_byte: Duration) -> io::Result<()> {
    if per_byte.is_zero() {
        return to.write_all(bytes);
    }
    bytes.iter().try_for_each(|byte| {
        thread::sleep(per_byte);
        to.write_all(&[*byte])
    })
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

trait Close: Write {
    fn close(&self);
}

impl Close for TcpStream {
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both); // the other side may have closed it
    }
}

impl Close for UnixStream {
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}
