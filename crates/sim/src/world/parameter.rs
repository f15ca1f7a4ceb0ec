//! Values in the text of a script.

use std::str::FromStr;

use anyhow::{Context, Result};

/// A value that has a text.
pub(super) trait Parameter: Sized {
    fn read(text: &str) -> Result<Self>;
    fn write(&self) -> String;
}

pub(super) fn number<N: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    text: &str,
) -> Result<N> {
    text.parse().with_context(|| format!("expected a number, found `{text}`"))
}

macro_rules! parameters {
    ($($type:ty: $read:expr,)*) => {
        $(impl Parameter for $type {
            fn read(text: &str) -> Result<Self> {
                $read(text)
            }

            fn write(&self) -> String {
                self.to_string()
            }
        })*
    };
}

parameters! {
    u64: number,
    usize: number,
    i64: number,
    String: |text: &str| Ok(text.into()),
    bool: |text: &str| text.parse().context("expected true or false"),
}

impl<P: Parameter> Parameter for Vec<P> {
    fn read(text: &str) -> Result<Self> {
        text.split_whitespace().map(P::read).collect()
    }

    fn write(&self) -> String {
        self.iter().map(P::write).collect::<Vec<_>>().join(" ")
    }
}
