//! Runs the command in a folder of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder to run commands in, with a database of its own.
pub(crate) struct Place {
    folder: TempDir,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) talk: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("leasehold-cli-")
            .tempdir()
            .expect("a temporary folder");
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(&path, content).expect("a file");
        path
    }

    /// The command, with nothing of this process's environment that could change it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("TMPDIR", self.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        ended(&self.command(arguments).output().expect("the command"))
    }

    pub(crate) fn run_with(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> Ended {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command");
        let mut stdin = child.stdin.take().expect("its input");
        // It may refuse its input before it has read it all.
        let _ = stdin.write_all(input.as_ref());
        drop(stdin);
        ended(&child.wait_with_output().expect("its end"))
    }

    /// Runs with `--json` and reads the answer.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, &["--json"]].concat());
        let answer: Value = serde_json::from_str(&ended.out)
            .unwrap_or_else(|error| panic!("{error}: {}{}", ended.out, ended.talk));
        assert_eq!(answer["schema"], 1, "{answer}");
        answer
    }

    /// Enqueues an item and answers its id.
    pub(crate) fn enqueue(&self, arguments: &[&str]) -> String {
        let ended = self.run(&[&["enqueue"], arguments].concat());
        assert_eq!(ended.code, 0, "{}", ended.talk);
        ended.out.trim().to_owned()
    }

    /// How many items the database holds.
    pub(crate) fn count(&self) -> usize {
        self.json(&["items", "list", "--limit", "1000"])["items"]
            .as_array()
            .expect("items")
            .len()
    }

    /// Runs, and holds the command to its refusal: the code, the three lines, nothing on its output.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        ended.expect_refusal(code)
    }
}

impl Ended {
    #[track_caller]
    pub(crate) fn expect_refusal(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}", self.talk);
        assert_eq!(self.out, "", "data on a refusal");
        let lines: Vec<&str> = self.talk.lines().collect();
        assert!(
            matches!(lines.as_slice(), [what, why, remedy]
                if what.starts_with("error: ")
                    && why.starts_with("  why: ")
                    && remedy.starts_with("  try: ")),
            "{}",
            self.talk
        );
        self.talk
    }
}

/// How the command ended that left this.
pub(crate) fn ended(output: &Output) -> Ended {
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        talk: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
