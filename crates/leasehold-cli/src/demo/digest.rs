//! What the demo's work finds out about one file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What there is to know of a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Digest {
    /// How many.
    pub(super) bytes: u64,
    /// How many line ends are among them, as `wc -l` counts.
    pub(super) lines: u64,
    /// In lower-case hexadecimal.
    pub(super) sha256: String,
}

impl Digest {
    /// Reads the file once.
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut piece = vec![0; 64 << 10];
        let (mut bytes, mut lines) = (0, 0);
        let mut hasher = Sha256::new();
        loop {
            let length = match file.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let part = &piece[..length];
            bytes += length as u64;
            lines += part.split(|byte| *byte == b'\n').count() as u64 - 1;
            hasher.update(part);
        }
        let sha256 = hasher
            .finalize()
            .iter()
            .fold(String::new(), |mut text, byte| {
                // Writing to a string does not fail.
                let _ = write!(text, "{byte:02x}");
                text
            });
        Ok(Self {
            bytes,
            lines,
            sha256,
        })
    }
}

#[cfg(test)]
mod tests;
