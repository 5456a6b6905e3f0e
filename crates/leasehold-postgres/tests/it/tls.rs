//! Encrypted connections, to a server of their own that has rules for who may come how.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use leasehold_core::{Lane, WorkStore as _};
use leasehold_postgres::{ConnectError, Options};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::cluster;
use crate::faults::with_parameter;
use crate::harness::{PATIENCE, lone};
use crate::server::{Programs, Server};

/// Who may come how.
const RULES: &str = "
    local   all all             trust
    hostssl all encrypted all   trust
    host    all encrypted all   reject
    hostssl all plain     all   reject
    host    all plain     all   trust
    hostssl all certified all   cert
    host    all secret    all   scram-sha-256
    host    all anybody   all   trust
";

const USERS: &str = "
    create user encrypted superuser; create user plain superuser; create user certified superuser;
    create user anybody superuser; create user secret superuser password 'hunter2'";

/// A server that offers TLS for the name `localhost`, and what whoever comes to it is given.
struct Secured {
    port: u16,
    owner: Client,
    files: TempDir,
    server: Server,
}

impl Secured {
    /// `None` where no server can be started here, which another test tells.
    async fn new() -> Option<Self> {
        cluster::shared().ok()?;
        let programs = Programs::find().ok()?;
        let files = tempfile::tempdir().unwrap();
        let ours = Authority::named("ours");
        ours.lay_out("root.pem", files.path());
        Authority::named("theirs").lay_out("other.pem", files.path());
        ours.certify("certified", "client", files.path());
        fs::write(files.path().join("empty.pem"), "").unwrap();
        let lay_out = |folder: &Path| {
            ours.certify("localhost", "server", folder);
            ours.lay_out("root.pem", folder);
            fs::copy(folder.join("server.pem"), files.path().join("server.pem")).unwrap();
            fs::write(folder.join("rules"), RULES).unwrap();
            let file = |setting, name| format!("{setting}={}", folder.join(name).display());
            vec![
                file("ssl_cert_file", "server.pem"),
                file("ssl_key_file", "server.key"),
                file("ssl_ca_file", "root.pem"),
                file("hba_file", "rules"),
            ]
        };
        let port = free_port();
        let server = Server::start_with(&programs, Some(port), lay_out).await;
        let owner = lone(&server.address()).await;
        owner.batch_execute(USERS).await.unwrap();
        let secured = Self {
            port,
            owner,
            files,
            server,
        };
        secured.offer_tls("on").await;
        Some(secured)
    }

    /// Has the server offer TLS or not, and waits until it does.
    async fn offer_tls(&self, setting: &str) {
        for text in [
            &format!("alter system set ssl = {setting}"),
            "select pg_reload_conf()",
        ] {
            self.owner.batch_execute(text).await.unwrap();
        }
        let looks = async {
            loop {
                let newcomer = lone(&self.server.address()).await;
                let row = newcomer.query_one("show ssl", &[]).await.unwrap();
                if row.get::<_, &str>(0) == setting {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, looks)
            .await
            .expect("the server does not read its settings anew");
    }

    /// The address of that user on that host; a word in capitals is the path of a file.
    fn address(&self, user: &str, host: &str, words: &str) -> String {
        let file = |name: &str| self.files.path().join(name).display().to_string();
        let words = words
            .replace("ROOT", &file("root.pem"))
            .replace("OTHER", &file("other.pem"))
            .replace("EMPTY", &file("empty.pem"))
            .replace("SERVER", &file("server.pem"))
            .replace("CLIENT", &file("client.pem"))
            .replace("KEY", &file("client.key"));
        let port = self.port;
        let joint = if words.is_empty() { "" } else { "?" };
        format!("postgres://{user}@{host}:{port}/postgres{joint}{words}")
    }

    /// How many connections there are, encrypted and not, of a store that is opened so and listens.
    async fn connections(&self, user: &str, words: &str) -> (i64, i64) {
        let address = self.address(user, "localhost", words);
        leasehold_postgres::examine(&address).await.expect(words);
        let options = Options::default();
        leasehold_postgres::migrate(&address, &options)
            .await
            .expect(words);
        let name = Uuid::new_v4().to_string();
        let named = with_parameter(&address, "application_name", &name);
        let store = leasehold_postgres::connect(&named, options).await;
        let store = store.expect(words);
        let mut hints = store.subscribe(&[Lane::default()]);
        tokio::time::timeout(PATIENCE, hints.next())
            .await
            .expect("the store does not listen");
        let text = "select count(*) filter (where ssl), count(*) filter (where not ssl)
             from pg_stat_ssl join pg_stat_activity using (pid)
             where starts_with(application_name, $1)";
        let row = self.owner.query_one(text, &[&name]).await.unwrap();
        let session = leasehold_postgres::session(&address, &Options::default()).await;
        let own = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        let own = session.expect(words).query_one(own, &[]).await.unwrap();
        assert_eq!(own.get::<_, bool>(0), row.get::<_, i64>(0) > 0, "{words}");
        (row.get(0), row.get(1))
    }

    /// What is said of an address that does not work.
    async fn refusal(&self, user: &str, host: &str, words: &str) -> String {
        let address = self.address(user, host, words);
        let error = leasehold_postgres::connect(&address, Options::default()).await;
        let error = error.expect_err(words);
        let examined = leasehold_postgres::examine(&address).await;
        assert_eq!(examined.unwrap_err().to_string(), error.to_string());
        match &error {
            ConnectError::Unusable(_) | ConnectError::Certificate(_) => {}
            other => panic!("{words}: {other:?}"),
        }
        error.to_string()
    }
}

/// Who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn named(name: &str) -> Self {
        let mut params = params_of(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// Its own certificate, as a file.
    fn lay_out(&self, file: &str, folder: &Path) {
        fs::write(folder.join(file), self.0.pem()).unwrap();
    }

    /// A certificate for that name and its key, as `<file>.pem` and `<file>.key`.
    fn certify(&self, name: &str, file: &str, folder: &Path) {
        let key = KeyPair::generate().unwrap();
        let certificate = params_of(name).signed_by(&key, &self.0).unwrap();
        fs::write(folder.join(format!("{file}.pem")), certificate.pem()).unwrap();
        let path = folder.join(format!("{file}.key"));
        fs::write(&path, key.serialize_pem()).unwrap();
        // A server refuses a key that others may read.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn params_of(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A port that nobody has; whoever takes it before the server does makes the test fail.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn connections_are_encrypted_as_the_address_asks_and_certificates_are_looked_at() {
    let Some(secured) = Secured::new().await else {
        return;
    };
    are_encrypted_as_asked(&secured).await;
    are_refused_with_words(&secured).await;
    secured.offer_tls("off").await;
    let told = secured
        .refusal("anybody", "localhost", "sslmode=require")
        .await;
    assert!(
        told.contains("offers no TLS, and sslmode asks for it; set ssl = on"),
        "{told}"
    );
    assert_eq!(secured.connections("anybody", "").await, (0, 2));
}

async fn are_encrypted_as_asked(secured: &Secured) {
    for (user, words, encrypted) in [
        ("anybody", "", true),
        ("anybody", "sslmode=disable", false),
        ("anybody", "sslmode=allow", false),
        ("anybody", "sslmode=prefer", true),
        ("anybody", "sslmode=require", true),
        ("anybody", "sslmode=require&sslrootcert=ROOT", true),
        ("anybody", "sslmode=verify-ca&sslrootcert=ROOT", true),
        ("anybody", "sslmode=verify-full&sslrootcert=ROOT", true),
        ("anybody", "sslmode=verify-full&sslrootcert=SERVER", true),
        ("encrypted", "sslmode=allow", true),
        ("plain", "sslmode=prefer", false),
        (
            "certified",
            "sslmode=verify-full&sslrootcert=ROOT&sslcert=CLIENT&sslkey=KEY",
            true,
        ),
        (
            "secret:hunter2",
            "sslmode=verify-full&sslrootcert=ROOT&channel_binding=require",
            true,
        ),
    ] {
        let wanted = if encrypted { (2, 0) } else { (0, 2) };
        assert_eq!(
            secured.connections(user, words).await,
            wanted,
            "{user} {words}"
        );
    }
    // By an address that the certificate is not for; the signature is good.
    let address = secured.address("anybody", "127.0.0.1", "sslmode=verify-ca&sslrootcert=ROOT");
    leasehold_postgres::examine(&address).await.unwrap();
}

async fn are_refused_with_words(secured: &Secured) {
    for (user, host, words, what) in [
        (
            "anybody",
            "127.0.0.1",
            "sslmode=verify-full&sslrootcert=ROOT",
            "is for another name (localhost); write one that it is for as host",
        ),
        (
            "anybody",
            "127.0.0.1",
            "sslmode=verify-full&sslrootcert=SERVER",
            "is for another name (localhost); write one that it is for as host",
        ),
        (
            "anybody",
            "localhost",
            "sslmode=verify-full&sslrootcert=OTHER",
            "is signed by nobody in sslrootcert; give the certificate of whoever signed it",
        ),
        (
            "anybody",
            "localhost",
            "sslmode=require&sslrootcert=OTHER",
            "is signed by nobody in sslrootcert",
        ),
        (
            "anybody",
            "localhost",
            "sslrootcert=system",
            "is signed by nobody in sslrootcert",
        ),
        (
            "anybody",
            "localhost",
            "sslmode=verify-full&sslrootcert=EMPTY",
            "it holds no certificate; give a file in PEM format",
        ),
        (
            "anybody",
            "localhost",
            "sslmode=verify-full&sslrootcert=nowhere.pem",
            "sslrootcert=nowhere.pem cannot be read: ",
        ),
        (
            "encrypted",
            "localhost",
            "sslmode=disable",
            "sslmode=require",
        ),
        ("plain", "localhost", "sslmode=require", "pg_hba.conf"),
        (
            "certified",
            "localhost",
            "sslmode=require",
            "does not let this user into",
        ),
        (
            "secret:hunter3",
            "localhost",
            "sslmode=require",
            "refused the password; correct it",
        ),
        (
            "secret",
            "localhost",
            "sslmode=require",
            "asks for a password",
        ),
    ] {
        let told = secured.refusal(user, host, words).await;
        assert!(told.contains(what), "{user} {words}: {told}");
        assert!(!told.contains("hunter") && !told.contains(user), "{told}");
    }

    // In time: the server says when it has read its settings anew.
}
