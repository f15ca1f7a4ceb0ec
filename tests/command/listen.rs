//! Several addresses of one server, and several servers on one file of revisions.

use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate_tests::HostProcess;

use crate::Folder;

#[test]
fn one_server_listens_on_several_addresses_and_drains_them_all() {
    let folder = Folder::new();
    folder.write("t.toml", "listen = ['127.0.0.1:0', 'localhost:0']");
    let flags = folder.command(&["serve", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    let mut variable = folder.command(&["serve"]);
    variable.env("TIDEGATE_LISTEN", "127.0.0.1:0,localhost:0");
    let file = folder.command(&["serve", "--config", "t.toml"]);
    for mut serve in [flags, variable, file] {
        let server = HostProcess::of(&mut serve);
        let apis = server.apis();
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
        server.signal("TERM");
        server.until_logged("SIGTERM");
        for stream in &mut begun {
            stream.write_all(b"{\"policy\":\"api\",\"key\":\"\"}").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
        let _ = server.ended();
    }
    let error = "--listen 0.0.0.0:0: other machines can reach this address, and no token";
    folder.fails(&["serve", "--listen", "127.0.0.1:0,0.0.0.0:0"], error);
    let server = folder.serve(&[]);
    let taken = server.url().trim_start_matches("http://").to_owned();
    folder.fails(
        &["serve", "--listen", "127.0.0.1:0", "--listen", &taken],
        &format!("--listen {taken}: Address already in use"),
    );
}

#[test]
fn a_second_server_on_the_same_revisions_says_so_and_does_not_start() {
    let folder = Folder::new();
    let tokens = ["--token", "t", "--admin-token", "a"];
    let serve = |more: &[&str]| folder.serve(&[&tokens[..], more].concat());
    let first = serve(&[]);
    let put = crate::POLICIES.replace('2', "3");
    assert_eq!(first.api.with(Some("a")).put_policies(&put).status, 200);
    let (code, _, error) =
        folder.run(&[&["serve", "--listen", "127.0.0.1:0"], &tokens[..]].concat());
    let expected = "error: policies.toml.revisions: another server keeps its revisions in this file; \
                    stop it, or name another file with --revisions\n";
    assert_eq!((code, error.as_str()), (2, expected));
    assert_eq!(folder.run(&[&["config"], &tokens[..]].concat()).0, 0, "it only reads");
    // a server whose callers cannot change the policies writes nothing that could be lost
    let _others = [folder.serve(&[]), serve(&["--revisions", "own"])];
    drop(first); // SIGKILL
    let file = serve(&[]).api.with(Some("a")).get("/v1/policies/file", &[]);
    assert_eq!((file.status, file.text), (200, put));
}
