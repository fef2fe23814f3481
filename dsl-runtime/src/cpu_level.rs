//! The level of this CPU: which instructions the code that it runs may have.

use std::fmt;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::kernel::Level;

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Baseline if cfg!(target_arch = "x86_64") => "x86-64",
            Level::Baseline => std::env::consts::ARCH,
            Level::V3 => "x86-64-v3",
            Level::V4 => "x86-64-v4",
        })
    }
}

/// The level of this CPU, whatever the environment says.
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    macro_rules! has {
        ($($feature:tt)*) => { $(std::is_x86_feature_detected!($feature))&&* };
    }
    if !has!("avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "movbe" "popcnt" "sse4.2") {
        Level::Baseline
    } else if !has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl") {
        Level::V3
    } else {
        Level::V4
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Baseline
}

/// The level to run at: the CPU's, or the one that `FUSE_CPU_LEVEL` lowers it to.
pub(crate) fn allowed_level() -> Result<Level> {
    static ALLOWED_LEVEL: OnceLock<Result<Level>> = OnceLock::new();
    ALLOWED_LEVEL.get_or_init(|| capped(level(), std::env::var("FUSE_CPU_LEVEL").ok())).clone()
}

fn capped(level: Level, setting: Option<String>) -> Result<Level> {
    let wanted = match setting.as_deref() {
        None | Some("") => return Ok(level),
        Some("baseline") => Level::Baseline,
        Some("v3") => Level::V3,
        Some("v4") => Level::V4,
        Some(other) => {
            let expected = "`baseline`, `v3` or `v4`";
            return Err(Error::Setting { name: "FUSE_CPU_LEVEL", value: other.to_string(), expected });
        }
    };
    Ok(level.min(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_lowers_the_level_and_never_raises_it() {
        let check = |level, setting: &str| capped(level, Some(setting.to_string()));
        assert_eq!(capped(Level::V4, None), Ok(Level::V4));
        assert_eq!(check(Level::V4, "v3"), Ok(Level::V3));
        assert_eq!(check(Level::V3, "v4"), Ok(Level::V3));
        assert_eq!(check(Level::V3, "baseline"), Ok(Level::Baseline));
        assert_eq!(
            check(Level::V3, "avx2").unwrap_err().to_string(),
            "FUSE_CPU_LEVEL=`avx2`: expected `baseline`, `v3` or `v4`"
        );
    }
}
