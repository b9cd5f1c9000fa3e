// AVX-512 F, BW, DQ and VL.
#include "reduce/avx512.h"
#include "reduce/kernels.h"

namespace pycomm {

constinit const KernelSet kAvx512Kernels = {"avx512", choose_reduce<Avx512>, choose_finish<Avx512>};

}  // namespace pycomm
