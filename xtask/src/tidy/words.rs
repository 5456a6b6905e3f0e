//! Rules for any text: nothing left unfinished, and nothing that is true on one machine only.

use super::Finding;

const MARKER_WORDS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];
const MARKER_MACROS: &[&str] = &["todo!(", "unimplemented!(", "dbg!("];
const MARKED_EXTENSIONS: &[&str] = &["rs", "toml", "sql", "sh", "md"];

/// Names that stand for any user in documentation and service files.
const PLACEHOLDER_USERS: &[&str] = &["user", "you", "me", "app", "leasehold"];

pub(super) fn markers(path: &str, text: &str) -> Vec<Finding> {
    let name = file_name(path);
    let is_script = !name.contains('.') && text.starts_with("#!");
    let is_marked = name
        .rsplit_once('.')
        .is_some_and(|(_, extension)| MARKED_EXTENSIONS.contains(&extension));
    if !is_script && !is_marked {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for marker in MARKER_WORDS.iter().chain(MARKER_MACROS) {
            if contains_word(line, marker) {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: at + 1,
                    what: format!("`{marker}` is left in"),
                    remedy: "finish it, or open an issue and take the mark out",
                });
            }
        }
    }
    findings
}

/// Absolute paths into somebody's home folder. Image recipes are left alone: their paths are the
/// image's own.
pub(super) fn machine_paths(path: &str, text: &str) -> Vec<Finding> {
    let name = file_name(path);
    if name.starts_with("Dockerfile") || name.starts_with("Containerfile") {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(at, line)| {
            let found = home_path(line)?;
            Some(Finding {
                path: path.to_owned(),
                line: at + 1,
                what: format!("`{found}` is a path of one machine"),
                remedy: "make it relative, take it from the environment, or write `/home/user`",
            })
        })
        .collect()
}

fn home_path(line: &str) -> Option<&str> {
    for home in ["/home/", "/Users/", "\\Users\\", "/root/"] {
        for (at, _) in line.match_indices(home) {
            // A path begins here only if nothing that could be its beginning stands before: a
            // host, a variable, a folder. A drive letter may.
            let before = line[..at].chars().next_back();
            let is_start = home.starts_with('\\')
                || before.is_none_or(|c| !c.is_alphanumeric() && !"_.-~})>*]".contains(c));
            let rest = &line[at + home.len()..];
            let name = rest
                .find(|c: char| !c.is_alphanumeric() && !"_.-".contains(c))
                .map_or(rest, |end| &rest[..end]);
            // The superuser's home has no user's name in it, so no placeholder either.
            let is_placeholder = home != "/root/" && PLACEHOLDER_USERS.contains(&name);
            if is_start && !name.is_empty() && !is_placeholder {
                return Some(&line[at..at + home.len() + name.len()]);
            }
        }
    }
    None
}

/// Whether `word` stands in the line with nothing glued to it.
fn contains_word(line: &str, word: &str) -> bool {
    let is_glue = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let glued_before = line[..at].chars().next_back().is_some_and(is_glue);
        let glued_after = line[at + word.len()..].chars().next().is_some_and(is_glue);
        !glued_before && (!glued_after || word.ends_with('('))
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
