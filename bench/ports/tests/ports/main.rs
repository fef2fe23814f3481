//! Every port against `f64`, on every device: at sizes that nothing divides, and at one that everything does.

mod attention;
mod channels;
mod data;
mod dequantized;
mod elementwise;
mod movement;
mod products;
mod rows;
mod scan;
mod scatter;
