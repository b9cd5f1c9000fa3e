// A collective on the same buffers again and again.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <string>

#include "python/hot_calls.h"

namespace pycomm {

struct PersistentParts {
  pybind11::object owner;  // the Python object that `calls` is in
  HotCalls* calls;
  std::shared_ptr<PyOperation> held;
  pybind11::object result;
  std::chrono::nanoseconds timeout;
  std::string what;  // the collective's name
  pybind11::object refuse;
};

pybind11::object make_persistent(PersistentParts parts);

}  // namespace pycomm
