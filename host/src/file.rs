//! Files that a user names. None of them may keep the process waiting for good or fill its memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest file that is read, in MiB. A `PUT` of a policy file may have 256 KiB.
const MOST_MIB: u64 = 16;

/// Reads a file, which may be a pipe.
///
/// # Errors
/// Returns an error if the file cannot be read or is longer than 16 MiB, as `/dev/zero` is.
pub fn read(file: &Path) -> io::Result<Vec<u8>> {
    let (mut bytes, most) = (Vec::new(), MOST_MIB << 20);
    let mut left = File::open(file)?.take(most);
    left.read_to_end(&mut bytes)?;
    if left.into_inner().read(&mut [0])? > 0 {
        return Err(io::Error::other(format!("expected at most {MOST_MIB} MiB, found more")));
    }
    Ok(bytes)
}

/// Reads a file that a server reads again while it runs, so it must be a regular one: a pipe could keep the server waiting.
///
/// # Errors
/// As [`read`], and if the file is not a regular one.
pub fn read_regular(file: &Path) -> io::Result<Vec<u8>> {
    match std::fs::metadata(file)?.is_file() {
        true => read(file),
        false => Err(io::Error::other("expected a regular file")),
    }
}

/// The text of a file that was read.
///
/// # Errors
/// Returns an error if the bytes are no UTF-8.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::other("expected UTF-8, found other bytes"))
}
