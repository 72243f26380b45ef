//! The chart with a real helm, on a real kube-apiserver, and its rights with the real controllers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

mod helm;
mod image;
mod pages;
mod policies;
mod release;
mod render;
mod rights;
