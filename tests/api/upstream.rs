//! A server behind the gateway, which does as the end of the path says, and a client that sends its bytes as they are.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_tests::{Served, until};
use tungstenite::Message;
use tungstenite::handshake::server::{Request, Response};

/// Longer than any test runs.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Upstream {
    pub address: String,
    /// The targets of all requests.
    seen: Arc<Mutex<Vec<String>>>,
    /// Lets a slow answer go on.
    pub go: Sender<()>,
    /// The chunks of an upload that were received so far.
    pub received: Receiver<String>,
}

impl Upstream {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (seen, (go, wait), (tell, received)) = (Arc::default(), channel(), channel());
        let wait = Arc::new(Mutex::new(wait));
        let all = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (all, wait, tell) = (Arc::clone(&all), Arc::clone(&wait), tell.clone());
                // a connection that breaks off ends its thread
                thread::spawn(move || drop(answer(stream.unwrap(), &all, &wait, &tell)));
            }
        });
        Self { address, seen, go, received }
    }

    pub fn seen(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Waits until it has seen more requests than these.
    pub fn wait_for_more_than(&self, seen: usize) {
        until(format_args!("more than {seen} requests are seen"), || self.seen() > seen);
    }
}

fn answer(
    stream: TcpStream,
    seen: &Mutex<Vec<String>>,
    wait: &Mutex<Receiver<()>>,
    tell: &Sender<String>,
) -> std::io::Result<()> {
    let mut head = vec![0; 200_000];
    let head = loop {
        let length = stream.peek(&mut head)?;
        let text = String::from_utf8_lossy(&head[..length]).into_owned();
        match text.split_once("\r\n\r\n") {
            Some((head, _)) => break head.to_owned(),
            None if length == 0 => return Ok(()),
            None => thread::yield_now(),
        }
    };
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap().push(target.clone());
    let path = target.split('?').next().unwrap_or_default();
    if path.ends_with("/socket") && head.to_ascii_lowercase().contains("upgrade: websocket") {
        return talk(stream);
    }
    let mut reader = BufReader::new(stream.try_clone()?);
    while reader.by_ref().lines().next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    respond(path, &head, &mut reader, &stream, (wait, tell))?;
    // what comes after its end would reset the connection, and the answer with it
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    std::io::copy(&mut reader, &mut std::io::sink()).map(drop)
}

fn respond(
    path: &str,
    head: &str,
    reader: &mut BufReader<TcpStream>,
    mut stream: &TcpStream,
    (wait, tell): (&Mutex<Receiver<()>>, &Sender<String>),
) -> std::io::Result<()> {
    match path.rsplit('/').next().unwrap_or_default() {
        "redirect" => write!(stream, "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\n{CLOSE}"),
        "empty" => write!(stream, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"),
        "silent" => {
            let _ = wait.lock().unwrap().recv(); // the test has ended
            write!(stream, "HTTP/1.1 200 OK\r\n{CLOSE}")
        }
        "page" => write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nset-cookie: sid=visitor; path=/\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{PAGE}",
            PAGE.len()
        ),
        "gzip" => {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n",
                GZIP.len()
            )?;
            stream.write_all(b"connection: close\r\n\r\n")?;
            stream.write_all(&GZIP)
        }
        "stream" => {
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
            write!(stream, "{head}5\r\nfirst\r\n")?;
            let _ = wait.lock().unwrap().recv(); // the test has ended
            write!(stream, "4\r\nlast\r\n0\r\n\r\n")
        }
        "broken" => write!(
            stream,
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\nno length\r\n"
        ),
        "upload" => {
            while let Some(chunk) = read_chunk(reader)? {
                let _ = tell.send(String::from_utf8_lossy(&chunk).into_owned());
            }
            write!(stream, "HTTP/1.1 200 OK\r\n{CLOSE}")
        }
        _ => write!(stream, "{}", echo(head, reader)?),
    }
}

/// The next chunk of a body; `None` at its end.
pub fn read_chunk(reader: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut size = String::new();
    reader.read_line(&mut size)?;
    let size = usize::from_str_radix(size.trim(), 16).unwrap();
    let mut chunk = vec![0; size + 2];
    reader.read_exact(&mut chunk)?;
    assert!(chunk.ends_with(b"\r\n"), "{chunk:?}");
    chunk.truncate(size);
    Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
}

/// `hello` as gzip stores it.
pub const GZIP: [u8; 28] = [
    31, 139, 8, 0, 0, 0, 0, 0, 0, 255, 1, 5, 0, 250, 255, 104, 101, 108, 108, 111, 134, 166, 16,
    54, 5, 0, 0, 0,
];

/// What a browser shows of the upstream.
pub const PAGE: &str = "<!doctype html><title>Upstream</title><p>A page of the upstream";

const CLOSE: &str = "content-length: 0\r\nconnection: close\r\n\r\n";

/// The request in JSON.
fn echo(head: &str, reader: &mut impl Read) -> std::io::Result<String> {
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let fields: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let length = fields.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let text = json!({ "line": line, "fields": fields, "body": body }).to_string();
    Ok(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
         ratelimit: \"theirs\";r=1\r\nx-of-connection: 1\r\nconnection: close, x-of-connection\r\n\r\n{text}",
        text.len()
    ))
}

/// Sends each message back until either end closes.
#[expect(clippy::result_large_err, reason = "the library says what a refusal of the handshake is")]
fn talk(stream: TcpStream) -> std::io::Result<()> {
    // it speaks the first protocol that it is offered
    let spoken = |request: &Request, mut response: Response| {
        let offered =
            request.headers().get("sec-websocket-protocol").and_then(|all| all.to_str().ok());
        if let Some(first) = offered.and_then(|all| all.split(',').next()) {
            response.headers_mut().insert("sec-websocket-protocol", first.parse().unwrap());
        }
        Ok(response)
    };
    let Ok(mut socket) = tungstenite::accept_hdr(stream, spoken) else { return Ok(()) };
    while let Ok(message) = socket.read() {
        if matches!(&message, Message::Text(text) if text.as_str() == "close") {
            let _ = socket.close(None); // the end is told by the next read
        } else if !message.is_close() {
            let _ = socket.send(message);
        }
    }
    Ok(())
}

/// The answer to a request whose bytes a client chose.
#[derive(Debug)]
pub struct RawReply {
    pub status: u16,
    pub head: String,
    pub body: String,
    /// All that came.
    pub bytes: Vec<u8>,
}

impl RawReply {
    /// The values of all fields of this name.
    pub fn all(&self, name: &str) -> Vec<String> {
        let fields = self.head.split("\r\n").filter_map(|line| line.split_once(": "));
        let named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.to_owned()).collect()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// A field that the upstream got.
    pub fn sent(&self, name: &str) -> Vec<String> {
        let json = self.json();
        let fields = json["fields"].as_array().unwrap_or_else(|| panic!("{self:?}")).iter();
        let named = fields.filter(|field| field[0] == name);
        named.map(|field| field[1].as_str().unwrap().to_owned()).collect()
    }
}

pub fn connect(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(served.url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a head of this line and these fields.
pub fn send(served: &Served, line: &str, fields: &[(&str, &str)]) -> RawReply {
    let mut stream = connect(served);
    let mut head = format!("{line} HTTP/1.1\r\nconnection: close\r\n");
    if !fields.iter().any(|(name, _)| *name == "host") {
        head.push_str("host: gateway.example\r\n");
    }
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    // a server that refuses a long head closes before it has read all of it
    let _ = write!(stream, "{head}\r\n");
    read(&mut stream)
}

/// All of an answer whose connection closes after it. Chunks are joined.
pub fn read(stream: &mut TcpStream) -> RawReply {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        true => body.split("\r\n").skip(1).step_by(2).collect(),
        false => body.to_owned(),
    };
    RawReply { status, head: head.to_owned(), body, bytes }
}
