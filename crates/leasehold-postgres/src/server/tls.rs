//! Encrypted connections: what is asked of a server's certificate.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres::Socket;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::{Mode, Roots, Wish};
use crate::error::ConnectError;

/// What encrypts connections.
pub(super) type Cipher = MakeRustlsConnect;

/// What is known of a connection's stream.
pub(crate) type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// What a server that speaks TLS from the first byte wants to hear.
const PROTOCOL: &[u8] = b"postgresql";

/// Reads the certificates that were asked for, and makes what encrypts connections as was wished.
pub(super) fn cipher(wish: &Wish) -> Result<Cipher, ConnectError> {
    let provider = Arc::new(ring::default_provider());
    let check = Check {
        signed: match &wish.roots {
            Some(roots) => Some(Signed::by(roots, &provider)?),
            None => None,
        },
        names: wish.mode == Mode::VerifyFull,
        provider: Arc::clone(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(check));
    let mut config = match &wish.identity {
        None => config.with_no_client_auth(),
        Some((certificates, key)) => {
            let certificates = read(certificates, "sslcert")?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| unreadable("sslkey", key, error))?;
            config
                .with_client_auth_cert(certificates, key)
                .map_err(|error| unusable(format!("sslcert and sslkey do not fit: {error}")))?
        }
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn unusable(why: impl Display) -> ConnectError {
    ConnectError::Certificate(why.to_string())
}

fn unreadable(name: &str, file: &Path, why: impl Display) -> ConnectError {
    unusable(format!(
        "{name}={} cannot be read: {why}; give a file in PEM format that this user may read",
        file.display()
    ))
}

fn read(file: &Path, name: &str) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let all = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(name, file, error))?;
    if all.is_empty() {
        return Err(unreadable(name, file, "it holds no certificate"));
    }
    Ok(all)
}

/// What a server's certificate must pass. Whatever is asked of it, the server must prove to have its key:
/// by the certificate, a password exchange is bound to this very connection.
#[derive(Debug)]
struct Check {
    /// Signed by whom; without, by anybody.
    signed: Option<Signed>,
    /// Whether it must be for the name of the host.
    names: bool,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct Signed {
    /// What was given as roots. A server's certificate that is among them is trusted as such, since one
    /// that signs itself is often its own root, which a chain may not be.
    given: Vec<CertificateDer<'static>>,
    chain: Arc<WebPkiServerVerifier>,
}

impl Signed {
    fn by(roots: &Roots, provider: &Arc<CryptoProvider>) -> Result<Self, ConnectError> {
        let mut store = RootCertStore::empty();
        let given = match roots {
            Roots::File(file) => {
                let given = read(file, "sslrootcert")?;
                for certificate in &given {
                    store
                        .add(certificate.clone())
                        .map_err(|error| unreadable("sslrootcert", file, error))?;
                }
                given
            }
            Roots::System => {
                // Machines trust certificates of kinds that are not understood here, besides others.
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if store.is_empty() {
                    return Err(unusable(
                        "this machine has no certificates that it trusts; install them (Debian: \
                         ca-certificates), or give a file as sslrootcert",
                    ));
                }
                Vec::new()
            }
        };
        let chain = WebPkiServerVerifier::builder_with_provider(store.into(), provider.clone());
        Ok(Self {
            given,
            chain: chain.build().map_err(unusable)?,
        })
    }
}

impl ServerCertVerifier for Check {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(signed) = &self.signed else {
            return Ok(ServerCertVerified::assertion());
        };
        if !signed.given.contains(certificate) {
            let verified =
                signed
                    .chain
                    .verify_server_cert(certificate, intermediates, name, ocsp, now);
            match verified {
                // Looked at last, when the signatures have been found good.
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )) if !self.names => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        } else if self.names {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
