//! Who decides for a limiter on Redis: an authority for each server, whose commands JavaScript sends, and whose replies it hands in.

mod arguments;
mod call;
mod driver;
mod flight;
mod native;
mod presence;
mod recovery;
mod reply;
mod script;
mod server;
mod slot;
mod tier;
mod under_way;

pub(crate) use tier::Tier;
