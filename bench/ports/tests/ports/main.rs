//! Every port against `f64`, on every device: at sizes that nothing divides, and at one that everything does.

mod attention;
mod backward;
mod channels;
mod convolution;
mod data;
mod decoding;
mod dequantized;
mod elementwise;
mod fused;
mod images;
mod indexed;
mod movement;
mod pairs;
mod persistent;
mod products;
mod recurrent;
mod reduced;
mod rows;
mod scan;
mod scatter;
mod sequences;
mod serving;
mod transforms;
