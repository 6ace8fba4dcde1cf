//! Authentication of nodes by a shared key.

use std::fmt;
use std::sync::Arc;

use ring::{hkdf, hmac};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup, WebPkiSupportedAlgorithms, ring as ring_provider,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, NamedGroup, SignatureScheme,
    version,
};

/// Name of the protocol between nodes (ALPN, RFC 7301).
const PROTOCOL: &[u8] = b"faircast-hop-1";

/// Header of an Ed25519 private key of 32 bytes in PKCS #8 (RFC 8410 s7).
const PKCS8_HEADER: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Key of relays and their hosts for mutual authentication. An Ed25519 key pair for each role is
/// derived from it, and TLS 1.3 carries raw public keys (RFC 7250). Without a key, connections are
/// encrypted but not authenticated: the key pairs are derived from a public constant.
#[derive(Clone)]
pub struct RelayKey {
    secret: Option<[u8; 32]>,
    is_secret: bool,
}

impl fmt::Debug for RelayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.authenticates() { "RelayKey(secret)" } else { "RelayKey(none)" })
    }
}

impl RelayKey {
    /// Creates the key of nodes that share a secret.
    pub const fn shared(secret: [u8; 32]) -> Self {
        Self { secret: Some(secret), is_secret: true }
    }

    /// Returns the absence of a key: any node may connect.
    pub const fn none() -> Self {
        Self { secret: None, is_secret: true }
    }

    /// Removes all secrecy, for simulations and measurements: packets are identical in every run.
    pub const fn without_secrecy(self) -> Self {
        Self { is_secret: false, ..self }
    }

    /// True if the key authenticates nodes.
    pub const fn authenticates(&self) -> bool {
        self.secret.is_some()
    }

    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        let context = format!("faircast 2026 hop {purpose}");
        blake3::derive_key(&context, self.secret.as_ref().map_or(&[][..], |secret| &secret[..]))
    }

    pub(crate) fn tokens(&self, node: &[u8]) -> (hmac::Key, hkdf::Prk) {
        let of = |purpose| blake3::keyed_hash(&self.derive(purpose), node);
        let reset = hmac::Key::new(hmac::HMAC_SHA256, of("reset").as_bytes());
        (reset, hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(of("token").as_bytes()))
    }

    pub(crate) fn client(&self) -> quinn_proto::crypto::rustls::QuicClientConfig {
        let provider = self.provider();
        let verifier = Arc::new(Verifier::new(&self.pair("server"), &provider));
        let resolver = AlwaysResolvesClientRawPublicKeys::new(Arc::new(self.pair("client")));
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(resolver));
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        // No server name is needed. A ticket would allow replay of packets in another connection.
        tls.enable_sni = false;
        tls.resumption = rustls::client::Resumption::disabled();
        tls.try_into().expect("the provider has the suite of initial packets")
    }

    pub(crate) fn server(&self) -> quinn_proto::crypto::rustls::QuicServerConfig {
        let provider = self.provider();
        let verifier = Arc::new(Verifier::new(&self.pair("client"), &provider));
        let resolver = AlwaysResolvesServerRawPublicKeys::new(Arc::new(self.pair("server")));
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(resolver));
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        tls.send_tls13_tickets = 0;
        tls.try_into().expect("the provider has the suite of initial packets")
    }

    /// Separate pairs per role prevent the reflection of a recorded handshake to its originator.
    fn pair(&self, role: &str) -> CertifiedKey {
        let seed = self.derive(role);
        let pkcs8 = [&PKCS8_HEADER[..], &seed].concat();
        let key = ring_provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))
            .expect("every 32 bytes are an Ed25519 key");
        let public = key.public_key().expect("the key has its public part");
        CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key)
    }

    /// Selects two suites: one with hardware support, for equal packet lengths, and one without.
    fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = ring_provider::default_provider();
        provider.cipher_suites = vec![
            ring_provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
            ring_provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ];
        provider.kx_groups = vec![ring_provider::kx_group::X25519];
        if !self.is_secret {
            provider.kx_groups = vec![&Constant];
            provider.secure_random = &Constant;
        }
        Arc::new(provider)
    }
}

#[derive(Debug)]
struct Constant;

impl SecureRandom for Constant {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        bytes.fill(0);
        Ok(())
    }
}

impl SupportedKxGroup for Constant {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Self))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl ActiveKeyExchange for Constant {
    fn complete(self: Box<Self>, _peer: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(&[0; 32][..]))
    }

    fn pub_key(&self) -> &[u8] {
        &[0; 32]
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[derive(Debug)]
struct Verifier {
    public: SubjectPublicKeyInfoDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(pair: &CertifiedKey, provider: &CryptoProvider) -> Self {
        let public = SubjectPublicKeyInfoDer::from(pair.cert[0].to_vec());
        Self { public, algorithms: provider.signature_verification_algorithms }
    }

    fn is_known(&self, end_entity: &CertificateDer<'_>) -> Result<(), Error> {
        match **end_entity == *self.public {
            true => Ok(()),
            false => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }
}

macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            _cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature_with_raw_key(message, &self.public, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.is_known(end_entity).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.is_known(end_entity).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}
