//! Registers of the roles: consumers get what the producer gives.

use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;

/// Registers of a multiprocessor.
const SM_REGISTERS: u32 = 64 * 1024;
/// Registers are assigned to the threads of a warp in multiples of these.
const REGISTER_STEP: u32 = 8;

/// The most registers that each of a block's threads can have.
pub fn registers_of_each(threads: u32) -> u32 {
    SM_REGISTERS / threads / REGISTER_STEP * REGISTER_STEP
}

/// Registers of a producer thread, and the fewest it can do with.
const PRODUCER_REGISTERS: [u32; 2] = [32, 24];
/// Preloaded words of operand A from which on consumers get all registers that the producer can give. More registers than a loop
/// needs make `ptxas` choose another order, which took 4 % longer.
const MANY_PRELOADED_WORDS: u32 = 32;

/// Registers of a consumer thread after `setmaxnreg`, where a producer thread keeps `producer_registers`. All threads start with the
/// same number, as many as fit or as the user allows, and their total does not grow. `None` where one warpgroup has enough, or there
/// is nothing to give.
fn consumer_registers(warpgroups: u32, limit: Option<u32>, producer_registers: u32) -> Option<u32> {
    let all = warpgroups + 1;
    let fitting = registers_of_each(all * WARPGROUP_WARPS * 32);
    let first = fitting.min(limit.unwrap_or(fitting)) / REGISTER_STEP * REGISTER_STEP;
    let shared = |given: u32| (first + given / warpgroups) / REGISTER_STEP * REGISTER_STEP;
    first.checked_sub(producer_registers).filter(|_| warpgroups > 1).map(shared)
}

/// Registers of a producer and of a consumer thread, with so many warps of consumers, each of whose threads preloads so many words.
pub fn role_registers(num_warps: u32, limit: Option<u32>, preloaded_words: u32) -> Option<[u32; 2]> {
    let consumers_get = |producer| consumer_registers(num_warps / WARPGROUP_WARPS, limit, producer);
    let mut producer = PRODUCER_REGISTERS[usize::from(preloaded_words >= MANY_PRELOADED_WORDS)];
    let consumer = consumers_get(producer)?;
    // More where consumers have no use for them.
    while consumers_get(producer + REGISTER_STEP) == Some(consumer) {
        producer += REGISTER_STEP;
    }
    Some([producer, consumer])
}
