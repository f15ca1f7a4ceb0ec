//! `cargo xtask start`

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

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
    build::build(build::Artifact::Worker)?; // before wrangler, so that its progress is seen
    install::node_packages()?;
    let token = token()?;
    let port = arguments.port.to_string();
    let variable = format!("TIDEGATE_TOKEN:{token}");
    // by npm, so that the Node of the workspace runs wrangler: the machine's may be too old for it
    let options =
        ["exec", "--", "wrangler", "dev", "--ip", "127.0.0.1", "--port", &port, "--var", &variable];
    let mut wrangler = command("npm", &options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("wrangler")?;
    let result = watch(&mut wrangler, &token, arguments.port);
    let _ = wrangler.kill(); // it may have ended by itself
    let _ = wrangler.wait();
    result
}

/// Passes on what wrangler says, and when it is ready says what to try.
fn watch(wrangler: &mut Child, token: &str, port: u16) -> Result<()> {
    let output = wrangler.stdout.take().context("wrangler has no standard output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        if line.contains("Ready on") {
            println!(
                "\nTry it, in another terminal; six times, and the sixth is refused:\n\n  \
                 curl -i http://127.0.0.1:{port}/v1/check -H 'authorization: Bearer {token}' \
                 -d '{{\"policy\":\"login\",\"key\":\"user:42\"}}'\n\n\
                 Edit policies.toml, and the Worker reloads. Ctrl-C ends it.\n"
            );
        }
    }
    bail!("wrangler ended: {}", wrangler.wait()?)
}

/// Good for this run alone.
fn token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
