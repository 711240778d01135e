//! TLS: an agent's certificate, and which agents a client trusts.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::path::Path;
use std::sync::Arc;
use tapml_graph::{Error, ErrorKind, Result};

/// Larger files hold no certificates.
const MAX_BYTES: u64 = 16 << 20;

/// An agent's configuration from its certificate chain and key, both PEM files.
pub fn server(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_slice(&tapml_files::read(key, MAX_BYTES, "a private key")?)
        .map_err(|e| Error::invalid(format!("{} holds no private key: {e}", key.display())))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    config
        .map(Arc::new)
        .map_err(|e| Error::invalid(format!("{} and {}: {e}", certificate.display(), key.display())))
}

/// A client's configuration: trusts the system's authorities and the certificates of a file, be they authorities or the
/// agent's own.
pub fn client(ca: Option<&Path>) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    let own = ca.map(certificates).transpose()?.unwrap_or_default();
    roots.add_parsable_certificates(own.iter().cloned());
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let known = if roots.is_empty() {
        None
    } else {
        let known = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        Some(known.map_err(|e| Error::invalid(format!("the trusted certificates: {e}")))?)
    };
    let trust = Trust { own, known, provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|e| Error::bug(format!("TLS: {e}")))?;
    Ok(Arc::new(config.dangerous().with_custom_certificate_verifier(Arc::new(trust)).with_no_client_auth()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = tapml_files::read(path, MAX_BYTES, "certificates")?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<std::result::Result<Vec<_>, _>>();
    let all = all.map_err(|e| Error::invalid(format!("{} holds no certificates: {e}", path.display())))?;
    if all.is_empty() {
        Err(Error::new(ErrorKind::InvalidInput, format!("{} holds no certificates", path.display())))
    } else {
        Ok(all)
    }
}

/// A certificate that the user has named is trusted as it is; any other must lead to a known authority.
#[derive(Debug)]
struct Trust {
    own: Vec<CertificateDer<'static>>,
    known: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        // The agent proves below that it has the key of this very certificate.
        if self.own.iter().any(|own| own.as_ref() == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.known {
            Some(known) => {
                known.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(rustls::CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
