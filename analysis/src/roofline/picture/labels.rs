//! Places for labels that do not cover each other.

use plotters::style::text_anchor::HPos;

/// An upright box in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) left: i32,
    pub(super) top: i32,
    pub(super) right: i32,
    pub(super) bottom: i32,
}

impl Rect {
    fn overlaps(&self, other: &Rect) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn contains(&self, other: &Rect) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }
}

/// The boxes that are taken.
pub(super) struct Labels {
    bounds: Rect,
    taken: Vec<Rect>,
}

/// Of text of 14 pixels, about.
const CHARACTER: i32 = 7;
const HALF_LINE: i32 = 8;
/// Pixels between the boxes that stand for a line.
const LINE_STEP: i32 = 6;
/// Right below a point first: above it is its roof.
const DIRECTIONS: [(i32, i32); 8] = [(1, 1), (0, 1), (1, 0), (-1, 1), (-1, 0), (0, -1), (1, -1), (-1, -1)];
/// Pixels from a point to its number.
const DISTANCES: [i32; 11] = [15, 20, 28, 38, 50, 64, 80, 98, 118, 140, 165];

impl Labels {
    /// Nothing is taken yet.
    pub(super) fn within(bounds: Rect) -> Labels {
        Labels { bounds, taken: Vec::new() }
    }

    /// Takes the box of a marker.
    pub(super) fn mark(&mut self, rect: Rect) {
        self.taken.push(rect);
    }

    /// Takes what a straight line covers.
    pub(super) fn mark_line(&mut self, from: (i32, i32), to: (i32, i32)) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let steps = (dx.abs().max(dy.abs()) / LINE_STEP).max(1);
        for step in 0..=steps {
            let (x, y) = (from.0 + dx * step / steps, from.1 + dy * step / steps);
            self.mark(Rect { left: x - 2, top: y - 2, right: x + 2, bottom: y + 2 });
        }
    }

    /// A position for a text that ends at `(x, y)` or, where that is taken, higher up by lines.
    pub(super) fn take(&mut self, (x, y): (i32, i32), text: &str, alignment: HPos) -> (i32, i32) {
        let width = CHARACTER * text.chars().count() as i32;
        let left = if matches!(alignment, HPos::Right) { x - width } else { x };
        for lines in 0..6 {
            let bottom = y - lines * 2 * HALF_LINE;
            let rect = Rect { left, top: bottom - 2 * HALF_LINE, right: left + width, bottom };
            if self.is_free(&rect) {
                self.taken.push(rect);
                return (x, bottom);
            }
        }
        (x, y)
    }

    /// A position for the middle of a point's number, and whether it is so far that a line should lead there.
    pub(super) fn beside(&mut self, (x, y): (i32, i32), text: &str) -> ((i32, i32), bool) {
        let half = CHARACTER * text.chars().count() as i32 / 2 + 2;
        for distance in DISTANCES {
            for (dx, dy) in DIRECTIONS {
                let position = (x + dx * distance, y + dy * distance);
                let rect = Rect {
                    left: position.0 - half,
                    top: position.1 - HALF_LINE,
                    right: position.0 + half,
                    bottom: position.1 + HALF_LINE,
                };
                if self.bounds.contains(&rect) && self.is_free(&rect) {
                    self.taken.push(rect);
                    return (position, distance > DISTANCES[1]);
                }
            }
        }
        ((x, y), false)
    }

    fn is_free(&self, rect: &Rect) -> bool {
        !self.taken.iter().any(|taken| taken.overlaps(rect))
    }
}
