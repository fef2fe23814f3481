//! What a list of ratios is summed up by.

/// The value below which this share of the values is, between neighbors in proportion; as `bench/compare.py` has it.
pub fn quantile(ordered: &[f64], share: f64) -> f64 {
    let place = share * (ordered.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(ordered.len() - 1);
    ordered[below] + (ordered[above] - ordered[below]) * (place - below as f64)
}

pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::{geometric_mean, quantile};

    #[test]
    fn quantiles_lie_between_neighbors() {
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.75), 3.0);
        assert_eq!(quantile(&[7.0], 0.1), 7.0);
    }

    #[test]
    fn a_geometric_mean_undoes_an_inverse() {
        assert!((geometric_mean(&[4.0, 0.25, 2.0, 0.5]) - 1.0).abs() < 1e-12);
    }
}
