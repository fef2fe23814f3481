//! The code of the guides.

pub mod debugging;
pub mod libraries;
pub mod masks;
pub mod tiles;
pub mod tuning;
pub mod views;
