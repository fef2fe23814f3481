//! Diagnostics of a kernel, merged over its variants.

use super::Variant;
use crate::support::diagnostic::{Diagnostic, Errors, count};

/// Mistakes of several variants: one that all share is reported once, one that only some have names them. Errors on the
/// same tokens of another variant are the same mistake, whatever types or extents they name.
#[derive(Default)]
pub struct MergedErrors {
    list: Vec<(Diagnostic, Vec<String>)>,
}

impl MergedErrors {
    pub fn add(&mut self, variant: &Variant, errors: Errors) {
        let known = self.list.len();
        let label = variant.to_string();
        for (i, error) in errors.iter().enumerate() {
            // Types may be named differently, so mistakes on the same tokens are matched by their order.
            let nth = errors.iter().take(i).filter(|other| other.loc == error.loc).count();
            match self.list[..known].iter_mut().filter(|(other, _)| other.loc == error.loc).nth(nth) {
                Some((_, variants)) => variants.push(label.clone()),
                None => self.list.push((error.clone(), vec![label.clone()])),
            }
        }
    }

    pub fn report(self, total: usize, errors: &mut Errors) {
        for (mut error, variants) in self.list {
            if variants.len() < total {
                let others = match variants.len() - 1 {
                    0 => String::new(),
                    others => format!(" and {}", count(others, "other")),
                };
                let place = format!("in the variant {}{others}", variants[0]);
                error.note = Some(match error.note {
                    Some(note) => format!("{note}; {place}"),
                    None => place,
                });
            }
            errors.add(error);
        }
        errors.sort();
    }
}
