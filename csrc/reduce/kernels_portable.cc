// Plain C++, which compilers vectorise for what every CPU of their target has. On x86-64 gcc 12 does not
// where a result is rounded to Float16.
#include "reduce/kernels.h"

namespace pycomm {
namespace {

struct Portable {
  static constexpr std::size_t kLanes = 1;

  static float load(const Float32* p) { return p->get(); }
  static float load(const Bfloat16* p) { return from_bits(static_cast<std::uint32_t>(p->get()) << 16); }
  static float load(const Float16* p) {
    const std::uint32_t bits = p->get();
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    // Exponents move from a bias of 15 to 127, the highest to the highest; those of the lowest are got by
    // subtracting the implicit bit that they lack: right even where the CPU takes subnormal float32 for zero.
    const std::uint32_t normal = magnitude + (magnitude < 0x0f800000u ? 112u << 23 : 224u << 23);
    const std::uint32_t subnormal = to_bits(from_bits(magnitude + (113u << 23)) - from_bits(113u << 23));
    return from_bits(select(magnitude < 1u << 23, subnormal, normal) | (bits & 0x8000u) << 16);
  }

  static void store(Float32* p, float x) { p->set(x); }
  static void store(Bfloat16* p, float x) {
    p->set(static_cast<std::uint16_t>(bfloat16_bits<std::uint32_t>(x)));
  }
  static void store(Float16* p, float x) {
    const std::uint32_t bits = to_bits(x);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Adding 0.5 leaves the multiple of 2^-24 that a subnormal counts, rounded, in the last bits.
    const std::uint32_t subnormal = to_bits(from_bits(magnitude) + 0.5f) - to_bits(0.5f);
    const std::uint32_t quiet = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    std::uint32_t result = select(magnitude < 113u << 23, subnormal, normal);
    // From 65520 `normal` is carried to infinity, from 2^16 beyond.
    result = select(magnitude < 143u << 23, result, 0x7c00u);
    result = select(magnitude > 0x7f800000u, quiet, result);
    p->set(static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000u)));
  }

 private:
  static float from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
  static std::uint32_t to_bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }

  // condition ? yes : no, without a branch, which would keep compilers from vectorising.
  static std::uint32_t select(bool condition, std::uint32_t yes, std::uint32_t no) {
    return no ^ ((yes ^ no) & (0u - condition));
  }
};

}  // namespace

constinit const KernelSet kPortableKernels = {"portable", choose_reduce<Portable>, choose_finish<Portable>};

}  // namespace pycomm
