//! Promises of deorbit that need neither a cluster nor a cloud.

mod choice;
mod judge;
mod preflight;
mod stage;
