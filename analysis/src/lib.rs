//! When to fuse, and what it gives.
//!
//! A [`graph::Graph`] of operations with shapes and types, on a [`device::Device`] with measured or nominal ceilings, gives
//! bytes, operations, launches and predicted times of each kernel on its own and of each fused one ([`cost`]). The
//! [`fusion::Analyzer`] scores every pair and chain by weighted criteria, names what forbids a fusion, and ranks what is left by the
//! time that it saves, with the library's kernel that does it ([`kernels`]). [`roofline`] draws measurements under the device's
//! ceilings; [`check`] puts measured times beside the predicted ones.
//!
//! ```
//! use fuse_analysis::device::builtin;
//! use fuse_analysis::dtype::DType;
//! use fuse_analysis::fusion::Analyzer;
//! use fuse_analysis::graph::{Graph, Operation};
//!
//! let mut graph = Graph::builder("layer norm and gelu");
//! graph.input("x", [4096, 4096], DType::F32)?;
//! graph.op(Operation::new("norm", "layer_norm").reads(["x"]).writes(["normed"]))?;
//! graph.op(Operation::new("act", "gelu").reads(["normed"]).writes(["y"]))?;
//! let graph = graph.finish()?;
//!
//! let device = builtin::h200();
//! let analysis = Analyzer::new(&graph, &device).run();
//! let best = &analysis.fusions[0];
//! assert_eq!(best.ops, ["norm", "act"]);
//! assert_eq!(best.verdict.saving.bytes_share, 0.5);
//! assert_eq!(best.verdict.kernel.unwrap().path, "layer_norm_gelu::LayerNormGelu");
//! # Ok::<(), fuse_analysis::error::GraphError>(())
//! ```
//!
//! Nothing here runs on a GPU: what has one measures, and writes files that this crate reads.

#![warn(missing_docs)]

pub mod check;
pub mod cost;
pub mod device;
pub mod dims;
pub mod dtype;
pub mod error;
pub mod fusion;
pub mod graph;
pub mod kernels;
pub mod kind;
pub mod measurements;
pub mod model;
pub mod report;
pub mod roofline;
pub mod units;
