//! `cargo xtask start`: starts the Worker on this machine.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::command;
use crate::{build, install};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The port to listen on
    #[arg(long, default_value_t = 8787)]
    port: u16,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    build::build(build::Artifact::Worker)?; // before wrangler, which hides the build's progress
    install::node_packages()?;
    let token = token()?;
    let port = arguments.port.to_string();
    let variable = format!("TIDEGATE_TOKEN:{token}");
    // this is the workspace's Node, because the machine's may be too old for wrangler; npm does not
    // start it, so that a signal reaches wrangler, which then ends its workerd
    let wrangler = ["node_modules/wrangler/bin/wrangler.js", "dev", "--ip", "127.0.0.1"];
    let mut wrangler = command("node_modules/.bin/node", &wrangler)
        .args(["--port", &port, "--var", &variable])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("wrangler")?;
    let process = wrangler.id().to_string();
    ctrlc::set_handler(move || {
        let _ = Command::new("kill").arg(&process).status(); // wrangler may have ended by itself
    })?;
    watch(&mut wrangler, &token, arguments.port)
}

/// Prints wrangler's output, and a command to try when wrangler is ready.
fn watch(wrangler: &mut Child, token: &str, port: u16) -> Result<()> {
    let output = wrangler.stdout.take().context("wrangler has no standard output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        if line.contains("Ready on") {
            println!(
                "\nRun this six times in another terminal. The sixth request is refused:\n\n  \
                 curl -i http://127.0.0.1:{port}/v1/check -H 'authorization: Bearer {token}' \
                 -d '{{\"policy\":\"login\",\"key\":\"user:42\"}}'\n\n\
                 If you edit policies.toml, the Worker reloads. Ctrl-C ends it.\n"
            );
        }
    }
    let status = wrangler.wait()?;
    // a process that a signal ended has no code, or the code of the signal
    if !status.success() && status.code().is_some_and(|code| code < 128) {
        bail!("wrangler ended: {status}");
    }
    Ok(())
}

/// A random token for this run.
fn token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
