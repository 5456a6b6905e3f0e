//! Reading an address as libpq's users write it.
//!
//! The driver reads all of it but what concerns TLS, of which it knows less than libpq does: that is taken
//! out here first.

use std::borrow::Cow;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::ConnectError;

#[cfg(test)]
mod tests;

/// How long one host is waited for to take a connection, unless the address says otherwise. Within the
/// patience of a pool, so that of several hosts the next gets its turn; more than the second in which a
/// packet that was lost is sent again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may be silent before the system asks whether its server is there: the system's own
/// default is two hours.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// Between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// So many questions without an answer end a connection: with the above, half a minute after the server
/// fell silent.
const KEEPALIVE_RETRIES: u32 = 3;

/// What was sent and is not acknowledged for so long ends a connection: far more than any network takes
/// that still works, and less than a lease.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

/// What an address says, read and found consistent. May hold a password.
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) config: Config,
    pub(super) tls: Wish,
}

/// How a connection is to be protected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wish {
    pub(super) mode: Mode,
    pub(super) roots: Option<Roots>,
    /// Our own certificate, and its key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

/// libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    Disable,
    Allow,
    #[default]
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Whose signature on a server's certificate counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Roots {
    File(PathBuf),
    /// Those that this machine trusts.
    System,
}

/// What is read here and not by the driver.
const OURS: &[&str] = &["sslmode", "sslrootcert", "sslcert", "sslkey"];

/// The address of what this machine trusts, in the place of a file.
const SYSTEM: &str = "system";

impl Address {
    /// Reads an address, a URL or `key=value` words, without repeating it in an error.
    pub(crate) fn parse(text: &str) -> Result<Self, ConnectError> {
        let words = Words::of(text);
        let mut config = Config::from_str(&words.rest).map_err(|error| {
            // The cause names the part that cannot be read; the error itself would be enough for a parser.
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            ConnectError::Address(cause.unwrap_or_else(|| "it is no Postgres address".to_owned()))
        })?;
        let tls = words.wish()?;
        if config.get_application_name().is_none() {
            config.application_name("leasehold");
        }
        if config.get_hosts().is_empty() {
            // The name that a certificate is to be for.
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        // As libpq does, a socket of this machine goes without TLS.
        let is_local = |host: &Host| !matches!(host, Host::Tcp(_));
        let mode = if config.get_hosts().iter().all(is_local) {
            Mode::Disable
        } else {
            tls.mode
        };
        config.ssl_mode(match mode {
            Mode::Disable | Mode::Allow => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        });
        words.set_patience(&mut config);
        Ok(Self {
            config,
            tls: Wish { mode, ..tls },
        })
    }
}

/// The words of an address.
struct Words<'a> {
    /// What the driver reads.
    rest: String,
    ours: Vec<(&'static str, Cow<'a, str>)>,
    /// The names of the others.
    others: Vec<String>,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        let is_url = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        if is_url {
            Self::of_url(text)
        } else {
            Self::of_words(text)
        }
    }

    fn empty() -> Self {
        Self {
            rest: String::new(),
            ours: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Takes a word that is ours; whether it was.
    fn take(&mut self, name: &str, value: impl FnOnce() -> Cow<'a, str>) -> bool {
        if let Some(known) = OURS.iter().find(|known| **known == name) {
            self.ours.push((known, value()));
            return true;
        }
        self.others.push(name.to_owned());
        false
    }

    /// The words of a URL come after the first `?` behind its user and password.
    fn of_url(text: &'a str) -> Self {
        let place = text.find('@').map_or(0, |at| at + 1);
        let Some(at) = text[place..].find('?').map(|at| place + at) else {
            return Self {
                rest: text.to_owned(),
                ..Self::empty()
            };
        };
        let mut words = Self::empty();
        let mut kept = Vec::new();
        for word in text[at + 1..].split('&') {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let name = percent_decode_str(name).decode_utf8_lossy();
            let value = || percent_decode_str(value).decode_utf8_lossy();
            if !word.contains('=') || !words.take(&name, value) {
                kept.push(word);
            }
        }
        text[..at].clone_into(&mut words.rest);
        if !kept.is_empty() {
            words.rest.push('?');
            words.rest.push_str(&kept.join("&"));
        }
        words
    }

    /// `name = value` words, a value in single quotes if it has spaces, and `\` before what is to be taken
    /// as it is.
    fn of_words(text: &'a str) -> Self {
        let mut words = Self::empty();
        let mut left = text.trim_start();
        while !left.is_empty() {
            let Some((name, after)) = left.split_once('=') else {
                // Nothing that could be read: the driver says why.
                words.rest.push_str(left);
                break;
            };
            let after = after.trim_start();
            let (value, after) = value_of(after);
            let word = &left[..left.len() - after.len()];
            if !words.take(name.trim_end(), || Cow::Owned(value)) {
                words.rest.push_str(word);
                words.rest.push(' ');
            }
            left = after.trim_start();
        }
        words
    }

    fn value(&self, name: &str) -> Option<&str> {
        // The last one wins, as with the driver's.
        let mut named = self.ours.iter().rev();
        named
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_ref())
    }

    fn wish(&self) -> Result<Wish, ConnectError> {
        let refused = |why: &str| Err(ConnectError::Address(why.to_owned()));
        let roots = match self.value("sslrootcert") {
            None | Some("") => None,
            Some(SYSTEM) => Some(Roots::System),
            Some(file) => Some(Roots::File(file.into())),
        };
        let is_system = roots == Some(Roots::System);
        let mode = match self.value("sslmode") {
            None if is_system => Mode::VerifyFull,
            None => Mode::default(),
            Some("disable") => Mode::Disable,
            Some("allow") => Mode::Allow,
            Some("prefer") => Mode::Prefer,
            Some("require") => Mode::Require,
            Some("verify-ca") => Mode::VerifyCa,
            Some("verify-full") => Mode::VerifyFull,
            Some(_) => {
                return refused(
                    "invalid value for option `sslmode`; it is one of disable, allow, prefer, require, \
                     verify-ca, verify-full",
                );
            }
        };
        if is_system && mode != Mode::VerifyFull {
            return refused(
                "sslrootcert=system needs sslmode=verify-full: anybody can have a certificate that this \
                 machine trusts, for a name of his own",
            );
        }
        match (mode, &roots) {
            (Mode::VerifyCa | Mode::VerifyFull, None) => refused(
                "sslmode=verify-ca and verify-full need sslrootcert, the file with the certificate of \
                 whoever signs the server's, or with verify-full sslrootcert=system",
            ),
            (Mode::Disable | Mode::Allow | Mode::Prefer, Some(_)) => refused(
                "sslrootcert protects nothing unless TLS is required; give sslmode=verify-full",
            ),
            (mode, _) => Ok(Wish {
                mode,
                roots,
                identity: self.identity()?,
            }),
        }
    }

    fn identity(&self) -> Result<Option<(PathBuf, PathBuf)>, ConnectError> {
        match (self.value("sslcert"), self.value("sslkey")) {
            (Some(certificate), Some(key)) => Ok(Some((certificate.into(), key.into()))),
            (None, None) => Ok(None),
            _ => Err(ConnectError::Address(
                "sslcert and sslkey belong together: a certificate and its key".to_owned(),
            )),
        }
    }

    /// Sets what the address leaves open, so that a server which is gone without a word is noticed.
    fn set_patience(&self, config: &mut Config) {
        let is_open = |name: &str| !self.others.iter().any(|given| given == name);
        if is_open("connect_timeout") {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if is_open("keepalives_idle") {
            config.keepalives_idle(KEEPALIVE_IDLE);
        }
        if is_open("keepalives_interval") {
            config.keepalives_interval(KEEPALIVE_INTERVAL);
        }
        if is_open("keepalives_retries") {
            config.keepalives_retries(KEEPALIVE_RETRIES);
        }
        if is_open("tcp_user_timeout") {
            config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
        }
    }
}

/// The value at the beginning of the text, and what comes after it.
fn value_of(text: &str) -> (String, &str) {
    let (is_quoted, inner) = match text.strip_prefix('\'') {
        Some(inner) => (true, inner),
        None => (false, text),
    };
    let mut value = String::new();
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\'' if is_quoted => return (value, &inner[at + 1..]),
            character if !is_quoted && character.is_whitespace() => return (value, &inner[at..]),
            '\\' => value.extend(characters.next().map(|(_, taken)| taken)),
            character => value.push(character),
        }
    }
    (value, "")
}
