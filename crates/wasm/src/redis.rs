//! Who decides for a limiter on Redis: an authority, whose commands JavaScript sends, and whose replies it hands in.

mod arguments;
mod call;
mod driver;
mod flight;
mod native;
mod recovery;
mod reply;
mod script;
mod tier;

pub(crate) use tier::Tier;
