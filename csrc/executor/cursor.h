// A place in an operand: walks its extents piece by piece.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "executor/bind.h"

namespace pycomm {

// The memory behind each area in one call.
using Areas = std::array<std::byte*, kAreas>;

class Cursor {
 public:
  Cursor() = default;
  Cursor(const Bound& bound, const Operand& operand, const Areas& areas)
      : bound_(&bound),
        areas_(&areas),
        extent_(operand.first_extent),
        end_(operand.first_extent + operand.extents),
        element_bytes_(operand.element_bytes) {}

  // Where the next byte is.
  std::byte* at() const {
    const Extent& extent = bound_->extent(extent_);
    return (*areas_)[static_cast<std::size_t>(extent.area)] + extent.first * element_bytes_ + offset_;
  }
  // How many bytes follow it without a gap; 0 at the end.
  std::uint64_t run() const {
    return extent_ == end_ ? 0 : bound_->extent(extent_).count * element_bytes_ - offset_;
  }
  // The same in elements; the cursor stands at the start of one.
  std::uint64_t run_elements() const { return extent_ == end_ ? 0 : run() / element_bytes_; }
  void advance(std::uint64_t bytes) {
    offset_ += bytes;
    if (extent_ != end_ && offset_ == bound_->extent(extent_).count * element_bytes_) {
      ++extent_;
      offset_ = 0;
    }
  }
  void advance_elements(std::uint64_t elements) { advance(elements * element_bytes_); }
  std::uint32_t element_bytes() const { return element_bytes_; }

 private:
  const Bound* bound_ = nullptr;
  const Areas* areas_ = nullptr;
  std::uint32_t extent_ = 0, end_ = 0;
  std::uint32_t element_bytes_ = 1;
  std::uint64_t offset_ = 0;  // bytes into the extent
};

}  // namespace pycomm
