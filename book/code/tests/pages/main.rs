//! The pages' kernels against references, on every device, and what the wrong ones come to.

mod attention;
mod check;
mod guides;
mod layer_norm;
mod matmul;
mod mistakes;
mod softmax;
mod vector_add;

/// Whether this build reports what kernels do wrong.
fn reports() -> bool {
    fuse_book::mistakes::add_without_mask::KERNEL.variants[0].hosts.iter().any(|host| host.reports)
}
