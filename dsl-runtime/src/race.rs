//! Races between the programs of a launch on the CPU: two programs touch one element of a slice, one of them writes it, and
//! nothing orders the two.
//!
//! The code of a debug build notes the accesses of a kernel's [`NotedAccess`] table in shadow memory, a word for each element of a
//! slice. It notes the first access of an element itself and calls [`RaceCheck::meet`] where it finds another one. A word has room for two
//! accesses, which is enough: as long as there is no race, an element was read by any programs, or changed atomically by any
//! programs, or touched by one program alone. Two programs that read it are enough to find any that writes. So what is found does
//! not depend on which program comes first. `lowering::cpu::emit::race` has the same layout.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ProgramAccess};
use crate::kernel::{Host, Kernel, ParamKind};

/// Bits of an access: what was done, then its place in the table; the program has the rest.
const TOUCH_BITS: u32 = 2;
const PLACE_BITS: u32 = 8;

/// Programs that an access can tell apart. A larger launch is not judged.
const MAX_PROGRAMS: u64 = 1 << (u32::BITS - TOUCH_BITS - PLACE_BITS);

/// Elements of a slice whose shadow memory takes 2 GiB. A launch with a longer one is not judged.
const MAX_ELEMENTS: u64 = 1 << 28;

/// An access of an element: what was done, where in the kernel and by which program. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NotedTouch(u32);

impl NotedTouch {
    const WRITE: u32 = 2;

    fn touch(self) -> u32 {
        self.0 & ((1 << TOUCH_BITS) - 1)
    }

    fn place(self) -> usize {
        (self.0 >> TOUCH_BITS) as usize & ((1 << PLACE_BITS) - 1)
    }

    fn program(self) -> u32 {
        self.0 >> (TOUCH_BITS + PLACE_BITS)
    }

    /// Whether both are by one program, or both read, or both are atomic.
    fn may_meet(self, other: NotedTouch) -> bool {
        self.program() == other.program() || self.touch() == other.touch() && self.touch() != Self::WRITE
    }
}

/// What becomes of a shadow word at a further access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Noted {
    /// It stays: the access finds no race that the word does not find too.
    Same,
    Changed(u64),
    /// A race with an access that was noted before.
    Race(NotedTouch),
}

/// Notes an access beside those of a word.
fn note(word: u64, new: NotedTouch) -> Noted {
    let [first, second] = [word, word >> 32].map(|half| NotedTouch(half as u32));
    let noted = [first, second].into_iter().filter(|noted| noted.0 != 0);
    if let Some(other) = noted.clone().find(|noted| !noted.may_meet(new)) {
        return Noted::Race(other);
    }
    let own = |noted: NotedTouch| noted.program() == new.program();
    let covers = |noted: NotedTouch| noted.touch() == new.touch() || noted.touch() == NotedTouch::WRITE;
    if noted.clone().any(|noted| own(noted) && covers(noted)) {
        return Noted::Same;
    }
    match (new.touch() == NotedTouch::WRITE, second.0) {
        // All that is noted is by this program.
        (true, _) => Noted::Changed(new.0.into()),
        (false, 0) => Noted::Changed(word | u64::from(new.0) << 32),
        (false, _) => Noted::Same,
    }
}

/// Two accesses that race.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Race {
    param: usize,
    index: u64,
    accesses: [NotedTouch; 2],
}

/// The shadow memory of a launch and the first race found in it.
#[derive(Debug)]
pub(crate) struct RaceCheck {
    host: &'static Host,
    grid: [u32; 3],
    /// A word for each element of each parameter that is judged.
    shadows: Vec<Box<[AtomicU64]>>,
    addresses: Vec<*const AtomicU64>,
    race: OnceLock<Race>,
}

impl RaceCheck {
    /// Returns the shadow memory of a launch with these arguments, as host code takes them. It is none for a launch that is not
    /// judged: one of a single program, or one that is too large.
    pub(crate) fn new(
        kernel: &Kernel,
        host: &'static Host,
        args: &[u64],
        grid: [u32; 3],
    ) -> Option<RaceCheck> {
        let programs: u64 = grid.iter().map(|&extent| u64::from(extent)).product();
        if host.noted.is_empty() || !(2..=MAX_PROGRAMS).contains(&programs) {
            return None;
        }
        let mut shadows: Vec<Box<[AtomicU64]>> = vec![];
        let mut slot = 0;
        for (position, param) in kernel.params.iter().enumerate() {
            let judged = host.noted.iter().any(|access| usize::from(access.param) == position);
            let length = if judged { args[slot + 1] } else { 0 };
            if length > MAX_ELEMENTS {
                return None;
            }
            let zeros = Box::new_zeroed_slice(length as usize);
            // SAFETY: zero is a valid atomic.
            shadows.push(unsafe { zeros.assume_init() });
            slot += if param.kind == ParamKind::Scalar { 1 } else { 2 };
        }
        let addresses = shadows.iter().map(|shadow| shadow.as_ptr()).collect();
        Some(RaceCheck { host, grid, shadows, addresses, race: OnceLock::new() })
    }

    /// The address of each parameter's shadow memory.
    pub(crate) fn shadows(&self) -> *const *const AtomicU64 {
        self.addresses.as_ptr()
    }

    /// What the first race says about a launch of `kernel`.
    pub(crate) fn error(&self, kernel: &'static Kernel) -> Option<Error> {
        let race = self.race.get()?;
        let access = |noted: NotedTouch| {
            let source = &self.host.noted[noted.place()];
            let [width, height, _] = self.grid;
            let program = noted.program();
            ProgramAccess {
                program: [program % width, program / width % height, program / width / height],
                verb: ["", "reads", "writes", "atomically changes"][noted.touch() as usize],
                line: kernel.line.wrapping_add_signed(source.line),
                column: source.column,
            }
        };
        // One order for both that threads may have found them in.
        let mut accesses = race.accesses;
        accesses.sort_by_key(|noted| noted.program());
        let [first, second] = accesses.map(|noted| Box::new(access(noted)));
        Some(Error::Race {
            kernel: kernel.name,
            param: kernel.params[race.param].name,
            index: race.index,
            first,
            second,
            file: kernel.file,
        })
    }

    /// Notes an access of an element whose shadow word has another one already.
    pub(crate) fn meet(&self, param: usize, index: u64, access: u32) {
        let new = NotedTouch(access);
        if self.race.get().is_some() {
            return;
        }
        let word = &self.shadows[param][index as usize];
        let mut found = word.load(Ordering::Relaxed);
        loop {
            match note(found, new) {
                Noted::Same => return,
                Noted::Changed(changed) => {
                    let order = Ordering::Relaxed;
                    match word.compare_exchange_weak(found, changed, order, order) {
                        Ok(_) => return,
                        Err(other) => found = other,
                    }
                }
                Noted::Race(first) => {
                    // Of several the first stays.
                    let _ = self.race.set(Race { param, index, accesses: [first, new] });
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 1;
    const WRITE: u32 = 2;
    const ATOMIC: u32 = 3;

    fn by(program: u32, touch: u32) -> NotedTouch {
        NotedTouch(program << 10 | program << 2 | touch)
    }

    /// Whether accesses in this order are found to race.
    fn races(accesses: &[(u32, u32)]) -> bool {
        let mut word = 0;
        accesses.iter().any(|&(program, touch)| {
            let new = by(program, touch);
            if word == 0 {
                word = new.0.into();
                return false;
            }
            match note(word, new) {
                Noted::Same => false,
                Noted::Changed(changed) => {
                    word = changed;
                    false
                }
                Noted::Race(other) => {
                    assert_ne!(other.program(), new.program());
                    assert_eq!(other.place() as u32, other.program());
                    true
                }
            }
        })
    }

    #[test]
    fn every_order_of_four_accesses_finds_a_race_if_there_is_one() {
        let choices: Vec<(u32, u32)> =
            (0..3).flat_map(|program| [READ, WRITE, ATOMIC].map(|touch| (program, touch))).collect();
        let mut found = 0;
        for code in 0..choices.len().pow(4) {
            let accesses = [1, 9, 81, 729].map(|place| choices[code / place % 9]);
            let pairs = accesses.iter().flat_map(|a| accesses.iter().map(move |b| (a, b)));
            let mut pairs = pairs.filter(|(a, b)| a.0 != b.0);
            let expected = pairs.any(|(a, b)| a.1 != b.1 || a.1 == WRITE);
            assert_eq!(races(&accesses), expected, "{accesses:?}");
            found += usize::from(expected);
        }
        assert_eq!(found, 9usize.pow(4) - 399);
    }
}
