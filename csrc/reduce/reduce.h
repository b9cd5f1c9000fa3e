// Element-wise reduction: dst[i] = a[i] (+) b[i], with run-time dispatch on the instruction set.
//
// Every instruction set gives the same bits, but for the payload of a NaN:
// - integer sums and products wrap;
// - no reduction depends on which operand comes first, but for the payload of a NaN;
// - min and max of a NaN and anything are NaN; -0 is less than +0 to them;
// - 16-bit floats are computed with in float32 and rounded to nearest even where stored; a NaN stays one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce/dtype.h"

namespace pycomm {

// One reduction of one call, with the element types of its two operands and result. `dst` may start at the
// address of an operand whose elements are as wide as its own or wider; other overlap is not allowed.
// Addresses need only the alignment of bytes.
using ReduceKernel = void (*)(void* dst, const void* a, const void* b, std::size_t elements);

// The kernel for `dtype` under `reduction` where each operand is either of the dtype itself or of its partial
// type. For a dtype that is its own partial type the three flags do not matter. No kernel divides: avg is sum
// until it is finished.
ReduceKernel reduce_kernel(Dtype dtype, Reduction reduction, bool dst_partial, bool a_partial,
                           bool b_partial);

// Makes complete values of what the reductions left. avg divides by the number of ranks (at least 1): floats
// in the partial type, then rounded to the dtype; integers divide the wrapped sum, toward zero. The other
// reductions leave the value as it is and only round it to the dtype. dst may start at the address of src;
// other overlap is not allowed. `src_partial`: src is of the partial type; dst is always of the dtype.
using FinishKernel = void (*)(void* dst, const void* src, std::size_t elements, std::int64_t ranks);
FinishKernel finish_kernel(Dtype dtype, Reduction reduction, bool src_partial);

// The one that this process's kernels are compiled for: "portable", "avx2", "avx512" or "avx512bf16".
const char* reduce_instruction_set();

}  // namespace pycomm
