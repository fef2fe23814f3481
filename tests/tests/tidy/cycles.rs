//! Circles of imports.

mod circles;

pub use circles::{Graph, circles, shown};

fn graph(edges: &[(&str, &str)]) -> Graph {
    let mut graph = Graph::new();
    for (from, to) in edges {
        graph.entry((*from).to_string()).or_default().insert((*to).to_string());
    }
    graph
}

#[test]
fn circles_are_found_and_shown() {
    let one_way = graph(&[("a", "b"), ("a", "c"), ("b", "c")]);
    assert_eq!(circles(&one_way), Vec::<Vec<String>>::new());

    let two = graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "d")]);
    assert_eq!(circles(&two), [vec!["b", "c"], vec!["d", "e", "f"]]);
    assert_eq!(shown(&two, &circles(&two)[0]), "b -> c -> b");
    assert_eq!(shown(&two, &circles(&two)[1]), "d -> e -> f -> d");

    let alone = graph(&[("a", "a"), ("b", "a")]);
    assert_eq!(circles(&alone), [["a"]]);
    assert_eq!(shown(&alone, &circles(&alone)[0]), "a -> a");

    // Two circles that share a node are one set, of which the shorter way is shown.
    let shared = graph(&[("b", "c"), ("c", "d"), ("d", "b"), ("b", "a"), ("a", "b")]);
    assert_eq!(circles(&shared), [["a", "b", "c", "d"]]);
    assert_eq!(shown(&shared, &circles(&shared)[0]), "a -> b -> a");
}
