//! Random kernels, with what they compute.

dsl_macros::random_programs!(40);
