//! Load shedders: which requests to refuse while there is too much to do.

pub mod fleet;
