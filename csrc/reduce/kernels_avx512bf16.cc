// AVX-512 with its conversion to bfloat16.
#include "reduce/avx512.h"
#include "reduce/kernels.h"

namespace pycomm {
namespace {

struct Avx512Bf16 : Avx512 {
  using Avx512::store;

  // The instruction takes subnormal float32 for zero, which the other sets do not.
  static void store(Bfloat16* p, __m512 x) {
    constexpr int kSubnormal = 0x20;
    if (_mm512_fpclass_ps_mask(x, kSubnormal) != 0) [[unlikely]]
      Avx512::store(p, x);
    else
      store_half(p, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
  }
};

}  // namespace

constinit const KernelSet kAvx512Bf16Kernels = {"avx512bf16", choose_reduce<Avx512Bf16>,
                                                choose_finish<Avx512Bf16>};

}  // namespace pycomm
