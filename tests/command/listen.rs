//! Several addresses of one server, and several servers on one file of revisions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use tidegate_tests::Api;

use crate::{Folder, signal};

/// Starts a server, and returns where it listens.
fn start(mut serve: Command) -> (Child, Vec<Api>) {
    let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let urls = line.split([' ', ',']).filter(|word| word.starts_with("http"));
    (server, urls.map(|url| Api::new(url, None)).collect())
}

#[test]
fn one_server_listens_on_several_addresses_and_drains_them_all() {
    let folder = Folder::new();
    folder.write("t.toml", "listen = ['127.0.0.1:0', 'localhost:0']");
    let flags = folder.command(&["serve", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    let mut variable = folder.command(&["serve"]);
    variable.env("TIDEGATE_LISTEN", "127.0.0.1:0,localhost:0");
    let file = folder.command(&["serve", "--config", "t.toml"]);
    for serve in [flags, variable, file] {
        let (mut server, apis) = start(serve);
        assert_eq!(apis.len(), 2);
        let left = apis.iter().map(|api| api.check("api", "k", 1, None).get("remaining"));
        assert_eq!(left.collect::<Vec<_>>(), [1, 0], "both count together");
        let head = "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 25\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n";
        let begun = apis.iter().map(|api| {
            let mut stream = TcpStream::connect(api.url().trim_start_matches("http://")).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            let mut goes_on = [0; 25];
            stream.read_exact(&mut goes_on).unwrap();
            assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");
            stream
        });
        let mut begun: Vec<_> = begun.collect();
        signal(&server, "TERM");
        let mut log = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("SIGTERM") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "expected a line about SIGTERM");
        }
        for stream in &mut begun {
            stream.write_all(b"{\"policy\":\"api\",\"key\":\"\"}").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
    let error = "--listen 0.0.0.0:0: other machines can reach this address, and no token";
    folder.fails(&["serve", "--listen", "127.0.0.1:0,0.0.0.0:0"], error);
    let (mut server, apis) = start(folder.command(&["serve", "--listen", "127.0.0.1:0"]));
    let taken = apis[0].url().trim_start_matches("http://").to_owned();
    folder.fails(
        &["serve", "--listen", "127.0.0.1:0", "--listen", &taken],
        &format!("--listen {taken}: Address already in use"),
    );
    let _ = server.kill();
    let _ = server.wait();
}

#[test]
fn a_second_server_on_the_same_revisions_says_so_and_does_not_start() {
    let folder = Folder::new();
    let tokens = ["--token", "t", "--admin-token", "a"];
    let serve = |more: &[&str]| {
        folder.command(&[&["serve", "--listen", "127.0.0.1:0"], &tokens[..], more].concat())
    };
    let (mut first, apis) = start(serve(&[]));
    let put = crate::POLICIES.replace('2', "3");
    assert_eq!(apis[0].with(Some("a")).put_policies(&put).status, 200);
    let second = serve(&[]).output().unwrap();
    let error = String::from_utf8(second.stderr).unwrap();
    let expected = "error: policies.toml.revisions: another server keeps its revisions in this file; \
                    stop it, or name another file with --revisions\n";
    assert_eq!((second.status.code(), error.as_str()), (Some(2), expected));
    assert_eq!(folder.run(&[&["config"], &tokens[..]].concat()).0, 0, "it only reads");
    // a server whose callers cannot change the policies writes nothing that could be lost
    let others = [
        start(folder.command(&["serve", "--listen", "127.0.0.1:0"])).0,
        start(serve(&["--revisions", "own"])).0,
    ];
    first.kill().unwrap(); // SIGKILL
    first.wait().unwrap();
    let (next, apis) = start(serve(&[]));
    let file = apis[0].with(Some("a")).get("/v1/policies/file", &[]);
    assert_eq!((file.status, file.text), (200, put));
    for mut server in others.into_iter().chain([next]) {
        let _ = server.kill();
        let _ = server.wait();
    }
}
