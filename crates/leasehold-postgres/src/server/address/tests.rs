//! What an address may say about TLS and patience, in both of its forms.

use super::*;

fn wish(mode: Mode) -> Wish {
    Wish {
        mode,
        ..Wish::default()
    }
}

fn refusal(address: &str) -> String {
    match Address::parse(address) {
        Err(error) => error.to_string(),
        Ok(read) => panic!("{address} is read as {:?}", read.tls),
    }
}

#[test]
fn a_mode_may_be_given_as_libpq_names_it() {
    for (word, mode, driver) in [
        ("", Mode::Prefer, SslMode::Prefer),
        ("sslmode=disable", Mode::Disable, SslMode::Disable),
        ("sslmode=allow", Mode::Allow, SslMode::Disable),
        ("sslmode=prefer", Mode::Prefer, SslMode::Prefer),
        ("sslmode=require", Mode::Require, SslMode::Require),
        (
            "sslmode=disable&sslmode=require",
            Mode::Require,
            SslMode::Require,
        ),
        ("ssl%6Dode=require", Mode::Require, SslMode::Require),
    ] {
        let read = Address::parse(&format!("postgres://ann@db/queue?{word}")).unwrap();
        assert_eq!(read.tls, wish(mode), "{word}");
        assert_eq!(read.config.get_ssl_mode(), driver, "{word}");
        assert_eq!(read.config.get_dbname(), Some("queue"), "{word}");
    }
}

#[test]
fn roots_and_an_identity_may_be_given_in_both_forms() {
    let wanted = Wish {
        mode: Mode::VerifyFull,
        roots: Some(Roots::File("/etc/our ca.pem".into())),
        identity: Some(("c'.pem".into(), "k.pem".into())),
    };
    for address in [
        "postgresql://ann:a?b&c=d@db:5433/queue?sslcert=c%27.pem&application_name=x\
         &sslmode=verify-full&sslkey=k.pem&sslrootcert=%2Fetc%2Four%20ca.pem",
        "host=db port=5433 dbname=queue sslrootcert = '/etc/our ca.pem' password='a?b&c=d' \
         sslcert=c\\'.pem sslmode=verify-full user=ann sslkey=k.pem application_name=x",
    ] {
        let read = Address::parse(address).unwrap();
        assert_eq!(read.tls, wanted, "{address}");
        let config = read.config;
        assert_eq!(config.get_password(), Some(&b"a?b&c=d"[..]), "{address}");
        assert_eq!(config.get_ports(), [5433], "{address}");
        assert_eq!(config.get_application_name(), Some("x"), "{address}");
    }
}

#[test]
fn what_this_machine_trusts_is_asked_for_the_name_too() {
    let read = Address::parse("postgres://db/queue?sslrootcert=system").unwrap();
    assert_eq!(
        (read.tls.mode, read.tls.roots),
        (Mode::VerifyFull, Some(Roots::System))
    );
    let why = refusal("postgres://db/queue?sslrootcert=system&sslmode=require");
    assert!(why.contains("needs sslmode=verify-full"), "{why}");
}

#[test]
fn what_would_protect_less_than_it_seems_to_is_refused() {
    for (words, why) in [
        ("sslmode=secret", "invalid value for option `sslmode`"),
        ("sslmode=verify-full", "need sslrootcert"),
        ("sslmode=verify-ca", "need sslrootcert"),
        ("sslrootcert=secret", "protects nothing"),
        ("sslmode=prefer&sslrootcert=secret", "protects nothing"),
        ("sslmode=require&sslcert=secret", "belong together"),
        ("sslcrl=secret", "unknown option `sslcrl`"),
        ("secret", "unterminated parameter"),
    ] {
        let told = refusal(&format!("postgres://ann:secret@db/queue?{words}"));
        assert!(told.contains(why), "{words}: {told}");
        assert!(!told.contains("secret"), "{words}: {told}");
    }
    for words in ["host=db sslmode", "host=db password='secret"] {
        let told = refusal(words);
        assert!(!told.contains("secret"), "{words}: {told}");
    }
}

#[test]
fn a_socket_of_this_machine_goes_without() {
    let read = Address::parse("postgres://ann@%2Frun%2Fpg/queue?sslmode=require").unwrap();
    assert_eq!(read.config.get_ssl_mode(), SslMode::Disable);
    let read = Address::parse("host=/run/pg,db sslmode=require").unwrap();
    assert_eq!(read.config.get_ssl_mode(), SslMode::Require);
}

#[test]
fn a_certificate_may_be_for_an_address() {
    let read = Address::parse("hostaddr=10.0.0.1 sslmode=require").unwrap();
    assert_eq!(read.config.get_hosts(), [Host::Tcp("10.0.0.1".to_owned())]);
}

#[test]
fn patience_is_set_unless_it_is_given() {
    let read = Address::parse("postgres://db/queue").unwrap().config;
    assert_eq!(read.get_connect_timeout(), Some(&CONNECT_TIMEOUT));
    assert_eq!(read.get_keepalives_idle(), KEEPALIVE_IDLE);
    assert_eq!(read.get_keepalives_interval(), Some(KEEPALIVE_INTERVAL));
    assert_eq!(read.get_keepalives_retries(), Some(KEEPALIVE_RETRIES));
    assert_eq!(read.get_tcp_user_timeout(), Some(&UNACKNOWLEDGED_MAX));
    let given = "postgres://db/queue?connect_timeout=7&keepalives_idle=70&keepalives_interval=71\
                 &keepalives_retries=72&tcp_user_timeout=73";
    let read = Address::parse(given).unwrap().config;
    let seconds = Duration::from_secs;
    assert_eq!(read.get_connect_timeout(), Some(&seconds(7)));
    assert_eq!(read.get_keepalives_idle(), seconds(70));
    assert_eq!(read.get_keepalives_interval(), Some(seconds(71)));
    assert_eq!(read.get_keepalives_retries(), Some(72));
    assert_eq!(read.get_tcp_user_timeout(), Some(&seconds(73)));
}
