//! An OVSDB (RFC 7047) client.
