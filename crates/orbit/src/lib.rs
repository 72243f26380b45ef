//! Keeps a cluster on a cloud clean, one module a controller. They see a cloud by the traits of `core` alone.

pub mod deorbit;
pub mod flight;
pub mod routegc;

mod flags;
mod nodes;
mod wake;
