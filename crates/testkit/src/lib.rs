//! Real Kubernetes and OVN parts for tests.
