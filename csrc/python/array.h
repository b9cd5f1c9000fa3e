// NumPy arrays as their own C structures: what the buffer protocol would tell, at the price of a few loads.
#pragma once

#include <pybind11/numpy.h>

#include <bit>
#include <cstddef>

namespace pycomm {

// A borrowed numpy.ndarray, of that very type: a subclass may mean something else by its memory (a mask).
class Array {
 public:
  // To be called before anything else. Not left to a static's first use: NumPy is imported here, which may
  // give up the interpreter lock, and a thread that has it would then wait for the static.
  static void load() { api_ = &Api::get(); }

  static bool is(PyObject* object) { return Py_TYPE(object) == api_->PyArray_Type_; }
  // A new one with the dtype of another and the given shape, its elements yet to be written; nullptr with
  // Python's exception set if there is no memory.
  static PyObject* make(const Array& like, int dimensions, const Py_ssize_t* shape) {
    Py_INCREF(like.array_.descr);  // the call takes it
    return api_->PyArray_NewFromDescr_(api_->PyArray_Type_, like.array_.descr, dimensions, shape, nullptr,
                                       nullptr, 0, nullptr);
  }

  explicit Array(PyObject* object) : array_(*reinterpret_cast<pybind11::detail::PyArray_Proxy*>(object)) {}

  std::byte* data() const { return reinterpret_cast<std::byte*>(array_.data); }
  int dimensions() const { return array_.nd; }
  const Py_ssize_t* shape() const { return array_.dimensions; }
  // NumPy's number of the dtype; -1 for the other byte order.
  int type_number() const {
    constexpr char kForeign = std::endian::native == std::endian::little ? '>' : '<';
    const auto& dtype = *reinterpret_cast<pybind11::detail::PyArrayDescr_Proxy*>(array_.descr);
    return dtype.byteorder == kForeign ? -1 : dtype.type_num;
  }
  // One piece of memory, in the order of C, with every element on an address that suits it.
  bool plain() const { return (array_.flags & kPlain) == kPlain; }
  bool writable() const { return (array_.flags & pybind11::detail::npy_api::NPY_ARRAY_WRITEABLE_) != 0; }

 private:
  using Api = pybind11::detail::npy_api;
  static constexpr int kPlain = Api::NPY_ARRAY_C_CONTIGUOUS_ | Api::NPY_ARRAY_ALIGNED_;

  static inline const Api* api_ = nullptr;

  const pybind11::detail::PyArray_Proxy& array_;
};

}  // namespace pycomm
