//! What the checks ask cargo: where the workspace is, who its members are, and to run something.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, TargetKind};

/// The workspace the current directory belongs to.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Where cargo puts what it builds.
    pub(crate) target: PathBuf,
    pub(crate) members: Vec<Member>,
}

/// One of our own crates.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Path of its `Cargo.toml`, relative to the workspace.
    pub(crate) manifest: String,
    pub(crate) binaries: Vec<String>,
    /// Names of its normal dependencies, optional and per-platform ones included.
    pub(crate) dependencies: Vec<String>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        // Without dependencies nothing is resolved, so this works offline and before a lock file.
        let metadata = MetadataCommand::new()
            .no_deps()
            .exec()
            .context("cannot read the workspace")?;
        Ok(Self {
            members: metadata
                .workspace_packages()
                .into_iter()
                .map(|package| member(package, &metadata))
                .collect(),
            target: metadata.target_directory.into_std_path_buf(),
            root: metadata.workspace_root.into_std_path_buf(),
        })
    }

    /// The paths of the `Cargo.toml` of every bridge, relative to the workspace.
    pub(crate) fn bridges(&self) -> Result<Vec<String>> {
        let mut manifests = Vec::new();
        let folders = fs::read_dir(self.root.join("bridges")).context("cannot list the bridges")?;
        for folder in folders {
            let name = folder.context("cannot list the bridges")?.file_name();
            let manifest = format!("bridges/{}/Cargo.toml", name.to_string_lossy());
            if self.root.join(&manifest).is_file() {
                manifests.push(manifest);
            }
        }
        manifests.sort();
        Ok(manifests)
    }

    pub(crate) fn has_binary(&self, package: &str, binary: &str) -> bool {
        self.members.iter().any(|member| {
            member.name == package && member.binaries.iter().any(|name| name == binary)
        })
    }
}

fn member(package: &Package, metadata: &Metadata) -> Member {
    let manifest = package
        .manifest_path
        .strip_prefix(&metadata.workspace_root)
        .unwrap_or(&package.manifest_path);
    Member {
        name: package.name.to_string(),
        manifest: manifest.as_str().replace('\\', "/"),
        binaries: package
            .targets
            .iter()
            .filter(|target| target.kind.contains(&TargetKind::Bin))
            .map(|target| target.name.clone())
            .collect(),
        dependencies: package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind == DependencyKind::Normal)
            .map(|dependency| dependency.name.clone())
            .collect(),
    }
}

/// The cargo that started this program, to be run at the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command =
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root);
    command
}

/// Whether `cargo <subcommand>` is installed.
pub(crate) fn has_subcommand(root: &Path, subcommand: &str) -> bool {
    cargo(root)
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command with our own standard streams, and fails if it fails.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let line = shown(command);
    println!("$ {line}");
    let status = command
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// The command as one would type it: the program by name, whatever folder it was found in.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program
        .file_name()
        .unwrap_or(command.get_program())
        .to_string_lossy();
    command
        .get_args()
        .fold(program.into_owned(), |line, argument| {
            format!("{line} {}", argument.to_string_lossy())
        })
}
