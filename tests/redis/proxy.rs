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

use fastrand::Rng;
use redis::io::tcp::socket2::SockRef;
use tidegate::local::RedisServer;

/// A TCP address that leads to a Redis.
pub struct Proxy {
    pub url: String,
    network: Arc<Mutex<Network>>,
}

#[derive(Clone, Copy, Default)]
struct Line {
    /// How long the bytes take in each direction.
    delay: Duration,
    /// How much longer each byte of an answer takes.
    per_byte: Duration,
    /// The chance in percent that a connection is reset when bytes arrive, in either direction.
    resets: u32,
}

struct Network {
    line: Line,
    /// Where the resets come from.
    random: Rng,
    /// The number of resets so far.
    resets: u64,
    /// The socket that new connections lead to.
    target: PathBuf,
    /// The number of connections so far.
    connections: usize,
    /// The numbers of the connections that lose all bytes.
    dead: HashSet<usize>,
    /// A request that contains these bytes: its answer, and all later bytes of its connection, are lost.
    unanswered: Option<Vec<u8>>,
    /// Whether a connection is reset as soon as it loses bytes.
    breaks: bool,
}

impl Proxy {
    /// A network that takes `delay` in each direction.
    pub fn start(server: &RedisServer, delay: Duration) -> Self {
        Self::serve(server, Line { delay, ..Line::default() }, 0)
    }

    /// A network that takes `delay` in each direction and resets connections at random, with this chance in percent
    /// whenever bytes arrive.
    pub fn resetting(server: &RedisServer, delay: Duration, resets: u32, seed: u64) -> Self {
        Self::serve(server, Line { delay, resets, ..Line::default() }, seed)
    }

    fn serve(server: &RedisServer, line: Line, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let target = socket(server);
        let network = Arc::new(Mutex::new(Network {
            line,
            random: Rng::with_seed(seed),
            resets: 0,
            target,
            connections: 0,
            dead: HashSet::new(),
            unanswered: None,
            breaks: false,
        }));
        let served = Arc::clone(&network);
        thread::spawn(move || serve(&listener, &served));
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

    /// Loses the answers to requests that contain these bytes, and all later bytes of their connections. Such a connection
    /// `breaks` when its answer is lost, or else stays open.
    pub fn lose_answers_to(&self, bytes: &[u8], breaks: bool) {
        let mut network = self.network.lock().unwrap();
        network.unanswered = Some(bytes.to_owned());
        network.breaks = breaks;
    }

    /// Loses no more answers on new connections.
    pub fn lose_nothing(&self) {
        self.network.lock().unwrap().unanswered = None;
    }

    /// From now on the bytes take this long in each direction.
    pub fn delay(&self, delay: Duration) {
        self.network.lock().unwrap().line.delay = delay;
    }

    /// From now on each byte of an answer takes this long.
    pub fn thin(&self, per_byte: Duration) {
        self.network.lock().unwrap().line.per_byte = per_byte;
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.network.lock().unwrap().connections
    }

    /// The number of connections that were reset so far.
    pub fn resets(&self) -> u64 {
        self.network.lock().unwrap().resets
    }
}

fn socket(server: &RedisServer) -> PathBuf {
    server.url().strip_prefix("redis+unix://").unwrap().into()
}

/// What becomes of bytes that arrive.
enum Fate {
    /// They go on at this time, each byte after this long.
    Pass(Instant, Duration),
    Lost,
    /// The connection is reset.
    Reset,
}

impl Network {
    fn fate(&mut self, number: usize) -> Fate {
        if self.dead.contains(&number) {
            return if self.breaks { Fate::Reset } else { Fate::Lost };
        }
        let Line { delay, per_byte, resets } = self.line;
        if self.random.u32(..100) < resets {
            self.resets += 1;
            return Fate::Reset;
        }
        Fate::Pass(Instant::now() + delay, per_byte)
    }
}

/// Carries bytes until the test ends.
fn serve(listener: &TcpListener, network: &Arc<Mutex<Network>>) {
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
            carry(client, to_server, |bytes| {
                let mut network = requests.lock().unwrap();
                let fate = network.fate(number);
                if network.unanswered.as_ref().is_some_and(|lost| contains(bytes, lost)) {
                    network.dead.insert(number); // this request still passes
                }
                match fate {
                    Fate::Pass(due, _) => Fate::Pass(due, Duration::ZERO),
                    fate => fate,
                }
            });
        });
        thread::spawn(move || carry(server, to_client, |_| answers.lock().unwrap().fate(number)));
    }
}

/// Carries bytes in one direction.
fn carry(mut from: impl Read, mut to: impl Close + Send + 'static, fate: impl Fn(&[u8]) -> Fate) {
    let (sender, under_way) = mpsc::channel::<(Fate, Vec<u8>)>();
    thread::spawn(move || {
        for (fate, bytes) in under_way {
            match fate {
                Fate::Pass(due, per_byte) => {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let _ = send(&mut to, &bytes, per_byte); // the other side may be closed
                }
                Fate::Lost => {}
                Fate::Reset => return to.reset(),
            }
        }
        to.close();
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..length];
        let _ = sender.send((fate(bytes), bytes.to_owned())); // the other side may be closed
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

/// One side of a connection.
trait Close: Write {
    fn close(&self);
    /// Ends the connection at once: the peer learns that it is reset once this and all its copies are dropped.
    fn reset(&self);
}

impl Close for TcpStream {
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both); // the other side may have closed it
    }

    fn reset(&self) {
        SockRef::from(self).set_linger(Some(Duration::ZERO)).unwrap();
        let _ = self.shutdown(Shutdown::Read); // ends the thread that reads from the client
    }
}

impl Close for UnixStream {
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }

    /// Redis gets nothing more, and closes its end.
    fn reset(&self) {
        self.close();
    }
}
