//! CloudSigma: floating addresses for Services, node initialisation, fail-over.

pub mod client;
