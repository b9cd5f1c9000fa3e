// The memory of a Python object, borrowed through the buffer protocol for as long as a call needs it.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "executor/error.h"

namespace pycomm {

class Memory {
 public:
  Memory() = default;
  // `object` is None or exports a contiguous buffer of just `bytes` bytes. Throws CallError(kInvalid).
  Memory(const pybind11::object& object, bool writable, std::uint64_t bytes, const char* what) {
    if (object.is_none()) return;
    if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
      PyErr_Clear();
      throw CallError(ErrorKind::kInvalid, -1,
                      std::string(what) + (writable ? " must be a writable, contiguous buffer"
                                                    : " must be a contiguous buffer"));
    }
    held_ = true;
    if (static_cast<std::uint64_t>(view_.len) == bytes) return;
    const auto found = std::to_string(view_.len);
    release();
    throw CallError(ErrorKind::kInvalid, -1,
                    std::string(what) + " has " + found + " bytes; this call needs " + std::to_string(bytes));
  }
  ~Memory() { release(); }
  Memory(Memory&& other) noexcept : view_(other.view_), held_(std::exchange(other.held_, false)) {}
  Memory& operator=(Memory&&) = delete;

  std::byte* data() const { return held_ ? static_cast<std::byte*>(view_.buf) : nullptr; }
  bool held() const { return held_; }

 private:
  void release() {
    if (std::exchange(held_, false)) PyBuffer_Release(&view_);
  }

  Py_buffer view_ = {};
  bool held_ = false;
};

}  // namespace pycomm
