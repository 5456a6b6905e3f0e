//! Why a connection could not be made, in words that say what to do. They name the host, the port and the
//! database, and never a user or a password; so what a server says is repeated only where it says neither.

use std::error::Error;
use std::io::{self, ErrorKind};

use rustls::CertificateError;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::DbError;

use super::Server;

#[cfg(test)]
mod tests;

pub(super) fn words(server: &Server, error: &tokio_postgres::Error) -> String {
    let place = server.places();
    if let Some(refusal) = error.as_db_error() {
        return of_server(server, &place, refusal);
    }
    if let Some(error) = cause::<rustls::Error>(error) {
        return of_handshake(&place, error);
    }
    if is_of_tls(error) {
        return of_tls(&place, error);
    }
    if let Some(error) = cause::<io::Error>(error) {
        return of_system(&place, error);
    }
    if error.is_closed() {
        return closed(&place);
    }
    match last_cause(error).as_str() {
        "password missing" => {
            format!("{place} asks for a password, and the address has none; give it one")
        }
        why => format!("no connection to {place}: {why}; correct the address"),
    }
}

/// Whether it happened while the connection was being encrypted. The driver tells that by its words alone.
pub(super) fn is_of_tls(error: &tokio_postgres::Error) -> bool {
    error.to_string() == "error performing TLS handshake"
}

/// What the server itself said.
fn of_server(server: &Server, place: &str, refusal: &DbError) -> String {
    let database = server.config.get_dbname().map_or_else(
        || "database of its user's name".to_owned(),
        |name| format!("database {name:?}"),
    );
    match refusal.code().code() {
        "28P01" => format!("{place} refused the password; correct it, or the user, in the address"),
        "28000" => {
            let tls = match server.config.get_ssl_mode() {
                SslMode::Disable => ", which may want TLS (sslmode=require)",
                _ => "",
            };
            format!(
                "{place} does not let this user into the {database} from here; create the user, or add a line \
                 for it to the server's pg_hba.conf{tls}"
            )
        }
        "3D000" => {
            format!("{place} has no {database}; create it, or correct its name in the address")
        }
        "42501" => format!(
            "{place} lets this user in, but not into the {database}; grant it the right to connect"
        ),
        "53300" => format!(
            "{place} takes no more connections; raise its max_connections, lower the number of ours, or put \
             a pooler in between"
        ),
        // Starting, shutting down, recovering: it says which.
        "57P01" | "57P02" | "57P03" => format!(
            "{place} takes no connections now: {}; wait until it does",
            refusal.message()
        ),
        // Only the code: the words may name the user.
        code => format!("{place} refused the connection (SQLSTATE {code}); its log says why"),
    }
}

/// What came to light while the connection was being encrypted.
fn of_handshake(place: &str, error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(fault) => of_certificate(place, fault),
        rustls::Error::AlertReceived(alert) => format!(
            "{place} did not accept the TLS connection ({alert:?}); it may want a certificate of ours \
             (sslcert and sslkey), or another version of TLS"
        ),
        other => format!(
            "no TLS connection to {place}: {other}; check that a PostgreSQL server is there"
        ),
    }
}

fn of_certificate(place: &str, fault: &CertificateError) -> String {
    let what = format!("the certificate of {place}");
    match fault {
        CertificateError::UnknownIssuer => format!(
            "{what} is signed by nobody in sslrootcert; give the certificate of whoever signed it, and if \
             that is what is given, somebody else answers in the server's place"
        ),
        CertificateError::NotValidForName => for_another_name(&what, &[]),
        CertificateError::NotValidForNameContext { presented, .. } => {
            for_another_name(&what, presented)
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{what} has expired; renew it, or correct this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("{what} is not valid yet; correct this machine's clock")
        }
        other => format!("{what} cannot be accepted: {other}; give the server one that can"),
    }
}

/// `names` are those that it is for, if they are known, each in its kind's parentheses: `DnsName("db")`.
fn for_another_name(what: &str, names: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name
            .split_once('(')
            .map_or(name.as_str(), |(_, inner)| inner);
        inner.trim_matches([')', '"']).to_owned()
    };
    let names: Vec<String> = names.iter().map(bare).collect();
    let names = if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", names.join(", "))
    };
    format!(
        "{what} is for another name{names}; write one that it is for as host in the address, with hostaddr \
         for where that is, or have a certificate made for the name in use; sslmode=verify-ca does not ask \
         for the name"
    )
}

/// What is wrong before there is a certificate to look at.
fn of_tls(place: &str, error: &tokio_postgres::Error) -> String {
    let why = last_cause(error);
    if why.contains("does not support TLS") {
        return format!(
            "{place} offers no TLS, and sslmode asks for it; set ssl = on in the server's settings, or do \
             without by sslmode=prefer"
        );
    }
    format!("no TLS connection to {place}: {why}; check that a PostgreSQL server is there")
}

/// What the system said.
fn of_system(place: &str, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => format!(
            "nothing takes connections at {place}; start the server, or correct host and port in the address"
        ),
        ErrorKind::NotFound => format!(
            "there is no socket {place}; start the server, or correct the folder in the address"
        ),
        ErrorKind::TimedOut => format!(
            "{place} did not answer in time; check that the host is up, and that no firewall is in between"
        ),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            format!("there is no way to {place}: {error}; check the network of this machine")
        }
        // The driver's word for a server of the wrong kind, by target_session_attrs.
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => format!(
            "{place} is not of the kind that target_session_attrs asks for: {error}; name one that is"
        ),
        ErrorKind::PermissionDenied => {
            format!(
                "the system refused to connect to {place}: {error}; check the rights of this user"
            )
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            closed(place)
        }
        _ if error.to_string().contains("lookup address") => format!(
            "the host of {place} is not known: {error}; correct its name in the address, or this machine's \
             name service"
        ),
        _ => format!("no connection to {place}: {error}; check the address and the network"),
    }
}

fn closed(place: &str) -> String {
    format!(
        "{place} closed the connection before it was made; check that a PostgreSQL server is there, and look \
         into its log"
    )
}

/// The first cause of that kind, also where an error of the system holds it.
fn cause<T: Error + 'static>(error: &tokio_postgres::Error) -> Option<&T> {
    let mut next = error.source();
    while let Some(error) = next {
        let found = error.downcast_ref::<T>().or_else(|| {
            let held = error.downcast_ref::<io::Error>()?.get_ref()?;
            held.downcast_ref::<T>()
        });
        if found.is_some() {
            return found;
        }
        next = error.source();
    }
    None
}

/// What all comes from.
fn last_cause(error: &tokio_postgres::Error) -> String {
    let mut last: &dyn Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
