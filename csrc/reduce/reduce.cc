#include "reduce/reduce.h"

#include <array>

#include "reduce/kernel_set.h"

namespace pycomm {
namespace {

struct Runnable {
  std::array<const KernelSet*, 4> sets = {&kPortableKernels};
  std::size_t count = 1;
};

Runnable detect() {
  Runnable found;
#ifdef __x86_64__
  // Each set uses the instructions of those before it, too. The built-in also asks whether the system saves
  // their registers.
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2) found.sets[found.count++] = &kAvx2Kernels;
  if (avx512) found.sets[found.count++] = &kAvx512Kernels;
  if (avx512 && __builtin_cpu_supports("avx512bf16")) found.sets[found.count++] = &kAvx512Bf16Kernels;
#endif
  return found;
}

const KernelSet& best() { return *kernel_sets().back(); }

}  // namespace

std::span<const KernelSet* const> kernel_sets() {
  static const Runnable found = detect();
  return {found.sets.data(), found.count};
}

ReduceKernel reduce_kernel(Dtype dtype, Reduction reduction, bool dst_partial, bool a_partial,
                           bool b_partial) {
  return best().reduce(dtype, reduction, dst_partial, a_partial, b_partial);
}

FinishKernel finish_kernel(Dtype dtype, Reduction reduction, bool src_partial) {
  return best().finish(dtype, reduction, src_partial);
}

const char* reduce_instruction_set() { return best().name; }

}  // namespace pycomm
