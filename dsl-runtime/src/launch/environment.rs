//! What the environment says of every launch.

/// Whether a variable of the environment is set to something but 0, read once.
macro_rules! flag {
    ($name:literal) => {{
        static SET: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *SET.get_or_init(|| std::env::var_os($name).is_some_and(|value| !value.is_empty() && value != "0"))
    }};
}

/// Whether each launch prints a line.
pub(super) fn tracing() -> bool {
    flag!("FUSE_TRACE")
}

/// Whether launches on the CPU look for races: they do unless `FUSE_RACE` is 0.
pub(super) fn looks_for_races() -> bool {
    static SET: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *SET.get_or_init(|| std::env::var_os("FUSE_RACE").is_none_or(|value| value != "0"))
}

/// Whether each launch waits for its kernel.
pub(crate) fn blocking() -> bool {
    flag!("FUSE_LAUNCH_BLOCKING")
}
