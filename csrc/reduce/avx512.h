// AVX-512's vectors of 16 floats.
#pragma once

#include <immintrin.h>

#include "reduce/element.h"

namespace pycomm {
namespace {

struct Avx512 {
  static constexpr std::size_t kLanes = 16;

  static __m512 load(const Float32* p) { return _mm512_loadu_ps(p); }
  static __m512 load(const Float16* p) { return _mm512_maskz_cvtph_ps(kAll, load_half(p)); }
  static __m512 load(const Bfloat16* p) {
    const auto words = reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(kAll, load_half(p)));
    return reinterpret_cast<__m512>(words << 16);
  }

  static void store(Float32* p, __m512 x) { _mm512_storeu_ps(p, x); }
  static void store(Float16* p, __m512 x) {
    store_half(p, _mm512_maskz_cvtps_ph(kAll, x, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store(Bfloat16* p, __m512 x) {
    const auto words = reinterpret_cast<__m512i>(bfloat16_bits<Words>(x));
    store_half(p, _mm512_maskz_cvtepi32_epi16(kAll, words));
  }

 protected:
  static void store_half(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }

 private:
  typedef std::uint32_t Words __attribute__((vector_size(64)));

  // Compiles to the unmasked instructions, whose own intrinsics make gcc 12 warn of variables in its headers.
  static constexpr __mmask16 kAll = 0xffff;

  static __m256i load_half(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
};

}  // namespace
}  // namespace pycomm
