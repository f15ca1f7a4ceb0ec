//! The options of the server: flags, environment, configuration file.

use std::process::Command;

use tidegate_tests::command;

use crate::Folder;

#[test]
fn flags_come_before_the_environment_that_before_the_file_and_that_before_defaults() {
    let folder = Folder::new();
    folder.write(
        "t.toml",
        "max-connections = 7\nredis-deadline = 9\nredis = 'redis://u:pass@h'\ntoken = 'hidden'\nserver-timing = true\n",
    );
    let shown = |flags: &[&str]| {
        let mut command = folder.command(&["config", "--config", "t.toml"]);
        command.args(flags).env("TIDEGATE_REDIS_DEADLINE", "8");
        command.env("TIDEGATE_REDIS_MAX_SKEW", "6");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = shown(&["--redis-max-skew", "5"]);
    let has = |text: &str, name: &str, value: &str, source: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap();
        let (own, from) = line.split_once('#').unwrap();
        assert_eq!((own.trim_end(), from.trim()), (format!("{name} = {value}").as_str(), source));
    };
    has(&text, "redis-max-skew", "5", "flag");
    has(&text, "redis-deadline", "8", "environment TIDEGATE_REDIS_DEADLINE");
    has(&text, "max-connections", "7", "file t.toml");
    has(&text, "server-timing", "true", "file t.toml");
    has(&text, "listen", "\"127.0.0.1:8080\"", "default");
    has(&text, "token", "\"…\"", "file t.toml");
    has(&text, "redis", "\"redis://…@h\"", "file t.toml");
    assert!(!text.contains("pass") && !text.contains("hidden"), "{text}");
    assert!(text.contains("# tls-cert is not set"), "{text}");
}

#[test]
fn a_wrong_configuration_file_says_where_and_what_is_expected() {
    let folder = Folder::new();
    for (text, expected) in [
        ("listne = 'x'", "line 1, column 1: expected one of policies, revisions, listen, "),
        ("config = 'x'", "found \"config\""),
        (
            "\n  max-connections = \"5\"",
            "line 2, column 21: max-connections: expected a whole number from 1 to 1000000, found a value of the type string",
        ),
        (
            "max-connections = 0",
            "line 1, column 19: max-connections: expected a whole number from 1 to 1000000, found another integer",
        ),
        ("redis-max-skew = -1", "expected a whole number from 0 to 86400000, found a value of"),
        (
            "server-timing = 'on'",
            "line 1, column 17: server-timing: expected true or false, found a value of the type string",
        ),
        ("token = true", "token: expected a text, found a value of the type boolean"),
        (
            "admin-token = 'a b '",
            "line 1, column 15: admin-token: expected printable ASCII without spaces around it, found another string",
        ),
        ("log-level = 'loud'", "expected one of error, warn, info, debug, found another string"),
        ("max-memory = '1MB'", "expected a size such as 256MiB, found another string"),
        ("tls-cert = ''", "expected a text that is not empty, found another string"),
        ("listen = []", "listen: expected an address or a name, and a port, as \"localhost:8080\""),
        (
            "redis-deadline = 5",
            "t.toml: the following required arguments were not provided: --redis",
        ),
        ("listen = ", "line 1, column "),
        (
            "policies = 'sk_secret'",
            "line 1, column 12: policies: expected the path of an existing file, found another string",
        ),
        (
            "tls-key = 'sk_secret'",
            "line 1, column 11: tls-key: expected the path of an existing file, found another string",
        ),
    ] {
        folder.write("t.toml", text);
        for name in ["serve", "config"] {
            folder.fails(&[name, "--config", "t.toml"], "error: t.toml: ");
            folder.fails(&[name, "--config", "t.toml"], expected);
        }
    }
    folder.fails(&["serve", "--config", "none.toml"], "--config none.toml: No such file");
    folder.write("t.toml", "max-connections = 7\n");
    folder.fails(&["serve", "--config", "t.toml", "--listen"], "error: a value is required");
    folder.write("t.toml", "max-memory = 100_000_000\nmax-connections = 0x10\nredis-deadline = 9");
    let (_, shown, error) = folder.run(&["config", "--config", "t.toml", "--redis", "redis://h"]);
    assert!(error.contains("'--redis <URL>' cannot be used with '--max-memory <SIZE>'"), "{shown}");
}

/// A person who mixes two lines up has the token where a number belongs.
#[test]
fn no_error_about_a_configuration_file_shows_a_value_of_it() {
    let folder = Folder::new();
    let names = folder.run(&["config"]).1;
    let names = names.lines().map(|line| line.trim_start_matches("# ").split(' ').next().unwrap());
    let is_file = |name: &&str| {
        ["policies", "revisions", "token", "admin-token", "log-secret"].contains(name)
            || ["tls-", "redis-c", "redis-k"].iter().any(|start| name.starts_with(start))
    };
    let mut wrong = vec![
        "listen = 'x:1'\ntoken = \"5ECRET\n".to_owned(),
        "token = 5ECRET".to_owned(),
        "token = '1'\ntoken = '5ECRET'".to_owned(),
        "token = '1' 5ECRET".to_owned(),
        "token = '1'\n5ECRET".to_owned(),
        "token = \"\\5ECRET\"".to_owned(),
    ];
    for name in names.filter(|name| !is_file(name)) {
        wrong.push(format!("{name} = '5ECRET'"));
    }
    for value in ["[5ECRET]", "['5ECRET']", "{ a = '5ECRET' }", "'5ECRET '"] {
        wrong.push(format!("token = {value}"));
    }
    assert!(wrong.len() >= 18, "{wrong:?}");
    for text in wrong {
        folder.write("t.toml", &text);
        let (code, out, error) = folder.run(&["config", "--config", "t.toml"]);
        assert!(code == 2 && !(out + &error).contains("5ECRET"), "{text}: {error}");
    }
    for number in
        ["99999999999999999999999", "9999999999999999999", "0x9999", "9.999", "9999-09-09"]
    {
        folder.write("t.toml", format!("token = {number}"));
        let (code, _, error) = folder.run(&["config", "--config", "t.toml"]);
        assert!(code == 2 && !error.contains("99"), "{number}: {error}");
    }
}

#[test]
fn config_refuses_what_serve_refuses_with_the_same_words() {
    let folder = Folder::new();
    folder.write("bad.toml", "[policies.p]\nlimits = []");
    folder.write("broken", "nonsense");
    folder.write("policies.toml.broken", crate::POLICIES);
    folder.write("policies.toml.broken.revisions", "nonsense");
    for arguments in [
        &["--policies", "none.toml"][..],
        &["--policies", "bad.toml"],
        &["--policies", "policies.toml.broken"],
        &["--listen", "0.0.0.0:0"],
        &["--listen", "nowhere"],
        &["--token", "a b "],
        &["--max-memory", "10KiB"],
        &["--redis", "nonsense"],
        &["--redis", "rediss://127.0.0.1:1", "--redis-ca", "broken"],
        &["--tls-cert", "broken", "--tls-key", "broken"],
    ] {
        let run = |command| {
            let (code, out, error) = folder.run(&[&[command], arguments].concat());
            (code, out, error)
        };
        let (code, out, error) = run("serve");
        assert!(code == 2 && error.starts_with("error: "), "{arguments:?}: {error}");
        assert_eq!(run("config"), (code, out, error), "{arguments:?}");
    }
}

#[test]
fn a_fatal_error_is_a_line_of_the_log_in_json() {
    let folder = Folder::new();
    folder.write("json.toml", "log-format = 'json'\nmax-connections = 'x'");
    folder.write("text.toml", "max-connections = 'x'");
    for (arguments, variable, expected) in [
        (&["--log-format", "json", "--listen", "nowhere"][..], "", "--listen nowhere: expected "),
        (
            &["--log-format=json", "--policies", "none.toml"],
            "",
            "none.toml: the policy file cannot",
        ),
        (&["--config", "json.toml"], "", "json.toml: line 2, column 19: max-connections: "),
        (&["--config", "text.toml"], "json", "text.toml: line 1, column 19: max-connections: "),
        (
            &["--redis-deadline", "5"],
            "json",
            "the following required arguments were not provided: --redis",
        ),
        (&["--nonsense"], "json", "unexpected argument '--nonsense' found"),
    ] {
        let mut serve = folder.command(&["serve", "--log-level", "error"]);
        serve.args(arguments);
        if !variable.is_empty() {
            serve.env("TIDEGATE_LOG_FORMAT", variable);
        }
        let output = serve.output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), log.lines().count()), (Some(2), 1), "{log}");
        let line: serde_json::Value = serde_json::from_str(&log).expect(&log);
        assert_eq!(line["level"], "ERROR");
        assert!(line["message"].as_str().unwrap().starts_with(expected), "{log}");
        assert!(line["timestamp"].is_string() && line["target"].is_string(), "{log}");
    }
    folder.fails(&["serve", "--log-format", "text", "--config", "json.toml"], "error: json.toml: ");
}

#[test]
fn a_wrong_variable_is_named_and_not_its_flag() {
    let folder = Folder::new();
    let error = |flags: &[&str]| {
        let mut config = folder.command(&["config"]);
        let output = config.args(flags).env("TIDEGATE_MAX_CONNECTIONS", "abc").output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        error(&[]),
        "error: TIDEGATE_MAX_CONNECTIONS: invalid value 'abc' for '--max-connections <N>': expected a whole number from 1 to \
         1000000, found \"abc\"\n"
    );
    for flags in [&["--max-connections", "x"][..], &["--max-connections=x"]] {
        assert!(error(flags).starts_with("error: invalid value 'x'"), "{}", error(flags));
    }
}

#[test]
fn a_variable_of_no_option_is_a_warning_that_names_those_like_it() {
    let folder = Folder::new();
    let misspelt = "TIDEGATE_TOKENN: no option has this environment variable, so it is ignored; did you mean TIDEGATE_TOKEN?";
    let other = "TIDEGATE_PORT_80: no option has this environment variable, so it is ignored; `tidegate serve --help` names all";
    let run = |command: &str, arguments: &[&str]| {
        let mut run = folder.command(&[command]);
        run.args(arguments).env("TIDEGATE_TOKENN", "5ECRET").env("TIDEGATE_PORT_80", "tcp://x");
        let output = run.env("TIDEGATE_REDIS_SERVER", "redis-server").output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    // a listener that cannot be opened ends the server
    for text in [run("serve", &["--listen", "192.0.2.1:1", "--token", "t"]), run("config", &[])] {
        assert!(text.contains(misspelt) && text.contains(other), "{text}");
        assert!(!text.contains("5ECRET") && !text.contains("TIDEGATE_REDIS_SERVER"), "{text}");
    }
}

#[test]
fn a_configuration_file_may_be_a_pipe() {
    let folder = Folder::new();
    let mut shell = Command::new("bash");
    let shell = shell.args(["-c", "$TIDEGATE config --config <(echo max-connections = 7)"]);
    let output = shell.current_dir(folder.path()).env("TIDEGATE", command()).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("\nmax-connections = 7 "), "{shown}");
}

#[test]
fn each_option_of_the_server_has_a_variable() {
    let (_, help, _) = Folder::new().run(&["serve", "--help"]);
    let options = help.lines().filter_map(|line| {
        let name = line.trim_start().strip_prefix("--")?.split(' ').next()?;
        Some(format!("[env: TIDEGATE_{}", name.replace('-', "_").to_uppercase()))
    });
    let options: Vec<_> = options.collect();
    assert!(options.len() >= 19, "{options:?}");
    for variable in options {
        assert!(help.contains(&variable), "{variable}: {help}");
    }
}
