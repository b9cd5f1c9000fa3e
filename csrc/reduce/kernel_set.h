// All kernels as compiled for one instruction set.
#pragma once

#include <span>

#include "reduce/reduce.h"

namespace pycomm {

// `reduce` and `finish` are reduce_kernel() and finish_kernel() of this set.
struct KernelSet {
  const char* name;
  ReduceKernel (*reduce)(Dtype dtype, Reduction reduction, bool dst_partial, bool a_partial, bool b_partial);
  FinishKernel (*finish)(Dtype dtype, Reduction reduction, bool src_partial);
};

extern const KernelSet kPortableKernels;
extern const KernelSet kAvx2Kernels;        // x86-64 only, like those that follow; wants AVX2, F16C and FMA
extern const KernelSet kAvx512Kernels;      // those and AVX-512 F, BW, DQ and VL
extern const KernelSet kAvx512Bf16Kernels;  // those and AVX-512 BF16

// The sets that this CPU can run, each better than the one before it; the first is the portable one.
std::span<const KernelSet* const> kernel_sets();

}  // namespace pycomm
