//! What was found out, one JSON object a line, and whether it is true.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use super::digest::Digest;
use super::scan::{Scan, Stamp};
use super::worker::Hashed;
use crate::failure::Failure;

/// What was written.
pub(super) struct Manifest<'a> {
    hashed: &'a [Hashed],
}

/// How the manifest compares with the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// The digest is the file's.
    pub(super) matching: usize,
    /// The file is as it was, and its digest is another.
    pub(super) mismatched: usize,
    /// The file was changed or went away while the demo ran, so that nothing can be said.
    pub(super) changed: usize,
}

impl<'a> Manifest<'a> {
    /// Writes it.
    pub(super) fn write(path: &Path, hashed: &'a [Hashed]) -> Result<Self, Failure> {
        let write = || {
            let mut file = BufWriter::new(File::create(path)?);
            for one in hashed {
                serde_json::to_writer(&mut file, &Line::of(one))?;
                file.write_all(b"\n")?;
            }
            file.flush()
        };
        write().map_err(|error: std::io::Error| {
            Failure::failed(format!("the manifest {} cannot be written", path.display()))
                .because(error)
                .remedy("give another place with --manifest")
        })?;
        Ok(Self { hashed })
    }

    /// Hashes every file again.
    pub(super) async fn check(&self, folder: &Path, scan: &Scan) -> Result<Checked, Failure> {
        let (folder, hashed) = (folder.to_owned(), self.hashed.to_vec());
        let found = scan.files.clone();
        // Off this thread, so that a Ctrl-C is heard meanwhile.
        tokio::task::spawn_blocking(move || {
            let mut checked = Checked::default();
            for one in &hashed {
                let path = folder.join(&one.path);
                let digest = Digest::of_file(&path);
                let stamp = Stamp::of(&path).ok();
                let was = found.binary_search_by(|file| file.path.cmp(&one.path));
                let was = was.ok().map(|at| found[at].stamp);
                match digest {
                    Ok(digest) if digest == one.digest => checked.matching += 1,
                    Ok(_) if stamp == was => checked.mismatched += 1,
                    _ => checked.changed += 1,
                }
            }
            checked
        })
        .await
        .map_err(|error| Failure::failed("the digests cannot be checked").because(error))
    }
}

impl Checked {
    /// For the story.
    pub(super) fn summary(&self) -> String {
        // Writing to a string does not fail.
        let mut text = format!("hashed every file again: {} digests match", self.matching);
        if self.mismatched > 0 {
            let _ = write!(text, ", {} DO NOT", self.mismatched);
        }
        if self.changed > 0 {
            let _ = write!(text, ", {} files were changed meanwhile", self.changed);
        }
        text
    }
}

#[derive(serde::Serialize)]
struct Line<'a> {
    path: &'a str,
    #[serde(flatten)]
    digest: &'a Digest,
}

impl<'a> Line<'a> {
    fn of(hashed: &'a Hashed) -> Self {
        Self {
            path: &hashed.path,
            digest: &hashed.digest,
        }
    }
}
