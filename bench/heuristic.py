"""How the library computes a matmul (`matmul_heuristic`, `matmul_operands`): the block, the split-K count and the operand copies that its model chooses,
and the copies themselves."""

import torch

from entry import NAMES, Launch, cdiv, sm_count
from exported import SECTOR


def is_aligned(operand):
    """Whether rows or columns of a matrix are contiguous and begin at multiples of 16 bytes, as far as strides say."""
    (rows, cols), (row, col), even = operand.shape, operand.stride(), 16 // operand.element_size()
    return col == 1 and (rows == 1 or row % even == 0) or row == 1 and (cols == 1 or col % even == 0)


#: Bytes of a line of L2, at which rows of copies begin.
CACHE_LINE = 128


def is_column_major(operand):
    """Whether the columns of a matrix, or of each of a batch, are contiguous and its rows are not."""
    return operand.stride(-2) == 1 != operand.stride(-1)


def within_sectors(operand):
    """Whether rows, or columns if these are contiguous, begin within 32-byte sectors of memory, as far as strides say."""
    line, count = (1, operand.shape[1]) if is_column_major(operand) else (0, operand.shape[0])
    return count > 1 and operand.stride(line) * operand.element_size() % SECTOR != 0


def aligned_copy(operand, transposed=False):
    """The rows of an operand, or its columns if these are contiguous; memory in which each begins at a cache line, or with
    `transposed` each of the other ones; and the operand there."""
    by_columns = is_column_major(operand)
    rows = operand.transpose(1, 2) if by_columns else operand
    batches, count, length = (rows.transpose(1, 2) if transposed else rows).shape
    line = CACHE_LINE // operand.element_size()
    copy = torch.empty((batches, count, cdiv(length, line) * line), dtype=operand.dtype, device="cuda")[:, :, :length]
    return rows, copy, copy.transpose(1, 2) if by_columns != transposed else copy


def copy_transposed(lines, copy, dtype):
    """The launch that copies the rows of an operand to columns."""
    count = lines.shape[0] * cdiv(lines.shape[1], 64) * cdiv(lines.shape[2], 64)
    return Launch("transpose_rows", [NAMES[dtype]], lambda *_: True, lambda *_: (count,), x=lines, out=copy)


def copy_rows(pairs, dtype):
    """The launch that copies the rows of one or both operands."""
    if not pairs:
        return []

    def programs(rows, cols):
        return sum(source.shape[0] * cdiv(source.shape[1], rows) * cdiv(source.shape[2], cols) for source, _ in pairs)

    short, usual, long = COPIED
    longest = max(source.shape[2] for source, _ in pairs)
    many = longest > usual[1] and programs(*long) >= 2 * sm_count()
    chosen = short if longest <= THIN_COLS else long if many else usual
    names = ("x", "x_out", "y", "y_out") if len(pairs) > 1 else ("x", "out")
    taken = dict(zip(names, (tensor for pair in pairs for tensor in pair)))
    return [Launch("align_both" if len(pairs) > 1 else "align_rows", [NAMES[dtype]], lambda *consts: consts == chosen,
                   lambda *consts: (programs(*consts),), **taken)]


#: The blocks: rows, columns and steps of 16-bit floats; a step, all else and the blocks on a multiprocessor with TMA loads,
#: and where threads load them; whether it has split-K; the extra time where threads store the result element by element.
BLOCKS = [((128, 256, 64), (0.585, 1.22, 1), (3.97, 1.33, 1), False, 1.06), ((128, 192, 64), (0.470, 1.26, 1), (5.74, 0.74, 1), True, 2.48),
          ((128, 128, 64), (0.339, 1.00, 1), (2.77, 0.07, 2), True, 0.59), ((64, 128, 64), (0.220, 0.47, 1), (1.93, 0.02, 4), True, 0.23),
          ((64, 64, 128), (0.257, 0.30, 1), (2.37, 0.02, 4), True, 0.29), ((64, 64, 64), (0.224, 0.32, 2), (1.24, 0.02, 6), False, 0.24),
          ((64, 32, 128), (0.310, 0.33, 2), (2.31, 1.96, 6), False, 0.17)]
SLIM, WIDE, LARGE, SMALL, MIDDLE = (64, 32, 128), (128, 192, 64), (128, 128, 64), (64, 128, 64), (64, 64, 128)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Rows and columns that a program copies: of rows of at most `THIN_COLS` elements, of others, and of long ones that are many; those that one
#: of `sum_parts` adds up for thin results.
COPIED, THIN_COLS, THIN = ((64, 32), (8, 256), (8, 1024)), 64, (16, 32)


#: Microseconds of a byte that is moved; of the kernel that adds the split-K results and of a byte of them; of the kernel that copies operands and of a byte that it
#: moves; how much longer a step takes for each further block on a multiprocessor, of copies by the GPU and of loads;
#: of a byte that blocks read at once out of the cache.
COSTS = (0.36e-6, 2.55, 0.0979e-6, 1.89, 0.409e-6, 0.402, 0.959, 0.0800e-6)


#: The extra reads of operands whose rows begin within 32-byte sectors.
STRADDLED = 1.25


#: The blocks of `f32`; microseconds of a step that each block on a multiprocessor adds and the least that one takes, of aligned operands and
#: of others; microseconds of all else; blocks on a multiprocessor; whether it has split-K.
FMA_BLOCKS = [((128, 128, 16), (1.44, 0.812), (1.49, 1.09), 1.72, 2, False), ((64, 128, 16), (0.728, 0.763), (0.747, 0.937), 3.78, 3, False),
              ((64, 64, 16), (0.437, 0.412), (0.452, 0.523), 1.11, 4, True), ((32, 32, 16), (0.158, 0.268), (0.169, 0.370), 0.708, 8, True)]


def by_fma(m, k, n, aligned, finishes=False):
    """The block and the split-K count of a matmul of `f32`, as the library chooses; with `finishes` it has an activation."""
    byte, sum_parts, summed_byte, *_ = COSTS

    def estimate(of, parts):
        (rows, cols, steps), even, odd, fixed, blocks, _ = of
        multiplied, latency = even if all(aligned) else odd
        on_one = cdiv(cdiv(m, rows) * cdiv(n, cols) * parts, sm_count())

        def of_blocks(count):
            return ((count * multiplied) ** 4 + latency**4) ** 0.25 if count else 0

        rounds = on_one // blocks * of_blocks(blocks) + of_blocks(on_one % blocks)
        rounds = cdiv(cdiv(k, steps), parts) * rounds + cdiv(on_one, blocks) * fixed
        moved = 4 * (m * k + k * n + m * n * parts) * byte
        time = (rounds**4 + moved**4) ** 0.25
        return time if parts == 1 else time + sum_parts + 4 * m * n * (parts + 1) * summed_byte

    usable = FMA_BLOCKS[1:] if finishes else FMA_BLOCKS
    configs = [(estimate(of, parts), of[0], parts) for of in usable for parts in PARTS
               if parts == 1 or of[-1] and k // parts >= 32 and 4 * parts * m * n <= 1 << 28]
    return min(configs, key=lambda config: config[0])[1:]


def kernels(block, in_parts, size, by_columns, adds=False):
    """Whether there are kernels of a block for elements of `size` bytes, of whole tiles and with split-K."""
    if size == 1:
        return block in (LARGE, MIDDLE) or block == WIDE and not adds, block == SMALL
    if size == 2:
        return not (block == WIDE and adds) and (by_columns or block != SLIM), in_parts
    return block not in (WIDE, SLIM), block in (SMALL, MIDDLE)


def estimate(extents, block, parts, copies, aligned, costs=COSTS, size=2, within=(False, False), odd=False):
    """Microseconds without the launch, by that model, of elements of `size` bytes: 2, 4 of `f32` in TF32, or 1. `within` says whether rows of
    either operand begin within sectors, `odd` whether threads store the result."""
    (m, k, n), ((rows, cols, steps), copied, loaded, _, stored) = extents, block
    own = steps * 2 // size
    byte, sum_parts, summed_byte, copy, copied_byte, shared, shared_loads, read_byte = costs
    by_copies = copies or all(aligned)
    (step, fixed, blocks), shared = (copied, shared) if by_copies else (loaded, shared_loads)
    fixed += stored if odd and parts == 1 else 0
    programs = cdiv(m, rows) * cdiv(n, cols) * parts
    beside = min(blocks, cdiv(programs, sm_count())) - 1
    if not by_copies:
        step *= own / steps
    down, across = (extent * (STRADDLED if of and not copies else 1) for extent, of in zip((rows, cols), within))
    read = size * min(programs, sm_count() * blocks) * (down + across) * own * read_byte
    step = ((step * (1 + beside * shared)) ** 4 + read**4) ** 0.25
    rounds = cdiv(programs, sm_count() * blocks) * (cdiv(cdiv(k, own), parts) * step + fixed)
    sums = 4 * m * n * parts
    moved = (size * (m * k + k * n) + (sums if parts > 1 else size * m * n)) * byte
    total = (rounds**4 + moved**4) ** 0.25
    if parts > 1:
        total += sum_parts + (sums + size * m * n) * summed_byte
    if copies:
        elements = sum(of for even, of in zip(aligned, (m * k, k * n)) if not even)
        total += copy + 2 * size * elements * copied_byte
    return total


def fastest(extents, aligned, within, by_columns, size=2, adds=False):
    """The block, the split-K count and which operands are copied, as the library chooses."""
    m, k, n = extents
    odd = n * max(size, 2) % 16 != 0
    configs = [(estimate(extents, block, parts, copies, aligned, size=size, within=within, odd=odd),
                (*block[0][:2], block[0][2] * 2 // size), parts, [copies and not even for even in aligned])
               for block in BLOCKS for whole, in_parts in [kernels(block[0], block[3], size, by_columns, adds)]
               for parts in PARTS
               if (whole if parts == 1 else in_parts and k // parts >= 128 and 4 * parts * m * n <= 1 << 28
                   and cdiv(m, block[0][0]) * cdiv(n, block[0][1]) * parts <= 2 * sm_count())
               for copies in ((False,) if all(aligned) else (False, True))]
    return min(configs, key=lambda config: config[0])[1:]
