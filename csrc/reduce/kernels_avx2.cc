// AVX2, F16C and FMA.
#include <immintrin.h>

#include "reduce/kernels.h"

namespace pycomm {
namespace {

struct Avx2 {
  static constexpr std::size_t kLanes = 8;

  static __m256 load(const Float32* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
  static __m256 load(const Float16* p) { return _mm256_cvtph_ps(load_half(p)); }
  static __m256 load(const Bfloat16* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(p)), 16));
  }

  static void store(Float32* p, __m256 x) { _mm256_storeu_ps(reinterpret_cast<float*>(p), x); }
  static void store(Float16* p, __m256 x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store(Bfloat16* p, __m256 x) {
    const auto bits = reinterpret_cast<__m256i>(bfloat16_bits<Words>(x));
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
  }

 private:
  typedef std::uint32_t Words __attribute__((vector_size(32)));

  static __m128i load_half(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
};

}  // namespace

constinit const KernelSet kAvx2Kernels = {"avx2", choose_reduce<Avx2>, choose_finish<Avx2>};

}  // namespace pycomm
