//! Circles of a directed graph. Takes the successors of each node; never knows what the nodes are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The nodes with their successors.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The sets of nodes that all reach each other, each in alphabetical order; a single node only where it is its own successor.
pub fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|node| (node.as_str(), reach(graph, node))).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (&node, ends) in &reached {
        let known = found.iter().any(|circle| circle.iter().any(|other| other == node));
        if known || !ends.contains(node) {
            continue;
        }
        let returns = |end: &&&str| reached.get(**end).is_some_and(|back| back.contains(node));
        found.push(ends.iter().filter(returns).map(|end| (*end).to_string()).collect());
    }
    found
}

/// A shortest way from the first node of a circle back to it, through nodes of the circle: `a -> b -> a`.
pub fn shown(graph: &Graph, circle: &[String]) -> String {
    let Some(first) = circle.first() else { return String::new() };
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut pending = VecDeque::from([first.as_str()]);
    while let Some(node) = pending.pop_front() {
        for next in graph.get(node).into_iter().flatten().filter(|next| circle.contains(next)) {
            if !before.contains_key(next.as_str()) {
                before.insert(next, node);
                pending.push_back(next);
            }
        }
    }
    let mut way = vec![first.as_str()];
    while let Some(&node) = before.get(way[way.len() - 1]) {
        way.push(node);
        if node == first {
            break;
        }
    }
    way.reverse();
    way.join(" -> ")
}

/// All that can be reached by one step or more.
fn reach<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g str> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<&str> = graph.get(from).into_iter().flatten().map(String::as_str).collect();
    while let Some(node) = pending.pop() {
        if found.insert(node) {
            pending.extend(graph.get(node).into_iter().flatten().map(String::as_str));
        }
    }
    found
}
