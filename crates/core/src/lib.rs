//! What every controller of groundcrew shares.
