//! Whether operations should be one kernel: five criteria with their weights, and what forbids it.
//!
//! | criterion | weight | value | threshold |
//! | --- | ---: | --- | --- |
//! | memory bandwidth savings | 0.4 | share of the bytes that no longer move | above 30 % |
//! | launch overhead | 0.2 | share of the launches that are saved | above 10 % |
//! | register pressure | 0.2 | registers of a thread, without accumulators | below 50 |
//! | code complexity | 0.1 | low, moderate, high | at most moderate |
//! | maintainability | 0.1 | high, moderate, low | high |
//!
//! A criterion that misses its threshold counts nothing. Savings count in full from two thirds on, which is what three elementwise
//! operations in one save, and in proportion below; moderate complexity counts three quarters. So LayerNorm and GELU, which save half of
//! the bytes and half of the launches, have 0.85. The score is the sum; from [`FUSE_AT`] on, if nothing forbids it and time is
//! saved, the verdict is to fuse.

use serde::Serialize;

use super::group::Profile;
use super::obstacle::{Obstacle, TILE_COLUMNS};
use crate::cost::{Context, Estimate};
use crate::graph::OpId;
use crate::kernels::{self, LibraryKernel};
use crate::kind::Pattern;
use crate::units::{self, ratio};

/// The least score to fuse at.
pub const FUSE_AT: f64 = 0.5;

/// The least share of bytes that counts.
pub const LEAST_BYTES_SAVED: f64 = 0.3;

/// The least share of launches that counts.
pub const LEAST_LAUNCHES_SAVED: f64 = 0.1;

/// As many registers count nothing.
pub const MOST_REGISTERS: u32 = 50;

/// What three elementwise operations in one save of bytes and of launches: 2 of 6.
const FULL_SAVING: f64 = 2.0 / 3.0;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Make one kernel of them.
    Fuse,
    /// Leave them in kernels of their own.
    KeepSeparate,
}

impl Decision {
    /// As it is written in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Decision::Fuse => "FUSE",
            Decision::KeepSeparate => "KEEP SEPARATE",
        }
    }
}

/// One criterion with what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Criterion {
    /// Its name.
    pub name: &'static str,
    /// How much of the score it can give.
    pub weight: f64,
    /// What was found, as printed.
    pub value: String,
    /// What is needed, as printed.
    pub threshold: &'static str,
    /// Whether it is reached.
    pub met: bool,
    /// How much of the weight counts, from 0 to 1.
    pub credit: f64,
}

impl Criterion {
    /// What it adds to the score.
    pub fn score(&self) -> f64 {
        self.weight * self.credit
    }
}

/// What one kernel saves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Saving {
    /// The share of bytes that no longer move: 0 to 1, and 0 where none did.
    pub bytes_share: f64,
    /// The share of launches that are saved, the same way.
    pub launches_share: f64,
    /// Seconds; negative where one kernel is slower.
    pub seconds: f64,
    /// How many times faster one kernel is predicted to be; 1 where both take no time.
    pub speedup: f64,
    /// How many times faster it could be where nothing but bytes counts.
    pub traffic_ratio: f64,
}

impl Saving {
    fn of(separate: &Estimate, fused: &Estimate) -> Saving {
        let share = |before: f64, after: f64| ratio(before - after, before, 0.0);
        let bytes = |estimate: &Estimate| estimate.cost.bytes() as f64;
        let launches = |estimate: &Estimate| f64::from(estimate.cost.launches);
        Saving {
            bytes_share: share(bytes(separate), bytes(fused)),
            launches_share: share(launches(separate), launches(fused)),
            seconds: separate.time.total - fused.time.total,
            speedup: ratio(separate.time.total, fused.time.total, 1.0),
            traffic_ratio: ratio(bytes(separate), bytes(fused), 1.0),
        }
    }
}

/// Whether operations should be one kernel, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What to do.
    pub decision: Decision,
    /// From 0 to 1.
    pub score: f64,
    /// The criteria that it is the sum of.
    pub criteria: Vec<Criterion>,
    /// What forbids it.
    pub obstacles: Vec<Obstacle>,
    /// Why, in words.
    pub reasons: Vec<String>,
    /// As they are now.
    pub separate: Estimate,
    /// In one kernel.
    pub fused: Estimate,
    /// What that saves.
    pub saving: Saving,
    /// The registers of a thread that it would need, without and with accumulators.
    pub registers: [u32; 2],
    /// The kernel of the library that does it.
    pub kernel: Option<LibraryKernel>,
}

impl Verdict {
    /// The verdict on operations that are in kernels `parts` now.
    pub(super) fn of(cx: &Context<'_>, parts: &[&[OpId]], obstacles: Vec<Obstacle>) -> Verdict {
        let mut ops = parts.concat();
        ops.sort();
        let mut separate = Estimate::default();
        for part in parts {
            separate += cx.fused(part);
        }
        let profile = Profile::of(cx, &ops);
        let fused = cx.fused(&ops);
        let mut verdict = Verdict {
            decision: Decision::KeepSeparate,
            score: 0.0,
            criteria: Vec::new(),
            obstacles,
            reasons: Vec::new(),
            saving: Saving::of(&separate, &fused),
            separate,
            fused,
            registers: [profile.live, profile.live + profile.accumulators],
            kernel: kernels::of_group(cx.graph, &ops),
        };
        verdict.criteria = verdict.judge(&profile);
        verdict.score = verdict.criteria.iter().map(Criterion::score).sum();
        verdict.decide();
        verdict
    }

    fn judge(&self, profile: &Profile) -> Vec<Criterion> {
        let share = |name, weight, share: f64, (least, threshold): (f64, &'static str)| {
            let met = share > least;
            let credit = if met { (share / FULL_SAVING).min(1.0) } else { 0.0 };
            Criterion { name, weight, value: units::percent(share), threshold, met, credit }
        };
        let few = profile.live < MOST_REGISTERS;
        let complexity = Grade::of_complexity(profile, self.kernel.is_some());
        let upkeep = Grade::of_upkeep(profile, self.kernel.is_some());
        vec![
            share("memory bandwidth savings", 0.4, self.saving.bytes_share, (LEAST_BYTES_SAVED, "> 30 %")),
            share("launch overhead", 0.2, self.saving.launches_share, (LEAST_LAUNCHES_SAVED, "> 10 %")),
            Criterion {
                name: "register pressure",
                weight: 0.2,
                value: format!("about {}", profile.live),
                threshold: "< 50 registers",
                met: few,
                credit: f64::from(u8::from(few)),
            },
            Criterion {
                name: "code complexity",
                weight: 0.1,
                value: complexity.name().to_owned(),
                threshold: "<= moderate",
                met: complexity <= Grade::Moderate,
                credit: [1.0, 0.75, 0.0][complexity as usize],
            },
            Criterion {
                name: "maintainability",
                weight: 0.1,
                value: upkeep.name().to_owned(),
                threshold: "high",
                met: upkeep == Grade::High,
                credit: f64::from(u8::from(upkeep == Grade::High)),
            },
        ]
    }

    fn decide(&mut self) {
        let mut reasons = self.obstacles.iter().map(|obstacle| obstacle.words.clone()).collect::<Vec<_>>();
        let is_free = reasons.is_empty();
        if is_free && self.saving.seconds <= 0.0 {
            reasons.push("it would save no time".to_owned());
        }
        if is_free && self.score < FUSE_AT {
            let missed = self.criteria.iter().filter(|criterion| !criterion.met);
            let missed = missed.map(|criterion| format!("{} {}", criterion.name, criterion.value));
            let missed = missed.collect::<Vec<_>>().join(", ");
            reasons.push(format!("its score is {:.2}, below {FUSE_AT}: {missed}", self.score));
        }
        if reasons.is_empty() {
            self.decision = Decision::Fuse;
            let (before, after) = (self.separate.cost.bytes(), self.fused.cost.bytes());
            reasons.push(format!("{} for {}", units::bytes(after), units::bytes(before)));
            let launches = self.separate.cost.launches.saturating_sub(self.fused.cost.launches);
            reasons.push(if launches == 1 {
                "one launch less".to_owned()
            } else {
                format!("{launches} launches less")
            });
            let missed = self.criteria.iter().filter(|criterion| !criterion.met);
            reasons.extend(missed.map(|miss| format!("{} misses: {}", miss.name, miss.value)));
        }
        self.reasons = reasons;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    Low,
    Moderate,
    High,
}

impl Grade {
    const fn name(self) -> &'static str {
        ["low", "moderate", "high"][self as usize]
    }

    /// An epilogue of a matmul, a second reduction and many operations make code harder by a step each; a prologue of a matmul, a
    /// second matmul, or a reduction over more than a tile of it, by two. Where the library has the kernel, one step is done.
    fn of_complexity(profile: &Profile, is_there: bool) -> Grade {
        let is_beyond_tile = profile.reductions > 0 && profile.row > TILE_COLUMNS;
        let is_woven = profile.has_prologue || profile.heavy > 1 || is_beyond_tile;
        let with_product = match profile.heavy {
            0 => 0,
            _ if is_woven => 2,
            _ => usize::from(profile.ops > 1),
        };
        let steps = with_product + profile.reductions.saturating_sub(1).min(1) + usize::from(profile.ops > 5);
        match steps.saturating_sub(usize::from(is_there)) {
            0 => Grade::Low,
            1 => Grade::Moderate,
            _ => Grade::High,
        }
    }

    /// What the library has is kept up already; a chain of elementwise operations is as easy as one, also behind a matmul.
    fn of_upkeep(profile: &Profile, is_there: bool) -> Grade {
        match profile.pattern {
            _ if is_there => Grade::High,
            Pattern::View | Pattern::Elementwise => Grade::High,
            Pattern::RowReduction | Pattern::Gather if profile.reductions < 2 => Grade::High,
            Pattern::Matmul | Pattern::Attention
                if profile.heavy == 1 && profile.reductions == 0 && !profile.has_prologue =>
            {
                Grade::High
            }
            Pattern::Opaque => Grade::Low,
            _ if profile.heavy > 0 && profile.has_prologue => Grade::Low,
            _ => Grade::Moderate,
        }
    }
}
