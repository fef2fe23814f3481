//! Passes that are watched: whoever runs a pipeline may hand an observer to it, which is told of each pass behind it.

use std::fmt;
use std::time::{Duration, Instant};

use super::Func;

/// A pass that ran.
#[derive(Clone, Copy, Debug)]
pub struct RanPass<'a> {
    pub name: &'static str,
    /// The function as the pass left it.
    pub func: &'a Func,
    pub took: Duration,
}

/// Who is told of passes.
pub trait PassObserver {
    fn ran(&self, pass: RanPass);
}

/// Runs passes, and tells an observer if there is one. Nothing is measured for nobody.
#[derive(Clone, Copy, Default)]
pub struct PassRunner<'a> {
    observer: Option<&'a dyn PassObserver>,
}

impl<'a> PassRunner<'a> {
    pub fn observed_by(observer: &'a dyn PassObserver) -> PassRunner<'a> {
        PassRunner { observer: Some(observer) }
    }

    /// Runs a pass on a function, or on what has one.
    pub fn run<T: AsRef<Func>, R>(self, name: &'static str, of: &mut T, pass: impl FnOnce(&mut T) -> R) -> R {
        let start = self.observer.map(|_| Instant::now());
        let result = pass(of);
        self.tell(name, (*of).as_ref(), start);
        result
    }

    /// Runs a pass that makes others of a function, and leaves it as it is.
    pub fn derive<R>(self, name: &'static str, func: &Func, pass: impl FnOnce(&Func) -> R) -> R {
        let start = self.observer.map(|_| Instant::now());
        let result = pass(func);
        self.tell(name, func, start);
        result
    }

    fn tell(self, name: &'static str, func: &Func, start: Option<Instant>) {
        if let (Some(observer), Some(start)) = (self.observer, start) {
            observer.ran(RanPass { name, func, took: start.elapsed() });
        }
    }
}

/// The same with and without an observer: what is compiled does not depend on it.
impl fmt::Debug for PassRunner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassRunner")
    }
}

impl AsRef<Func> for Func {
    fn as_ref(&self) -> &Func {
        self
    }
}
