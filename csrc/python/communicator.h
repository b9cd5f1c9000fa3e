// A fabric and a communicator as Python holds them.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/communicator.h"
#include "executor/progress.h"
#include "python/memory.h"

namespace pycomm {

// A fabric and the progress thread that serves its communicators.
struct PyFabric {
  explicit PyFabric(std::shared_ptr<Fabric> made)
      : fabric(std::move(made)), progress(std::make_shared<Progress>(fabric)) {}

  std::shared_ptr<Fabric> fabric;
  std::shared_ptr<Progress> progress;
};

// Throws std::invalid_argument for a NaN.
std::chrono::nanoseconds nanoseconds(double seconds);

// A signal handler that raised ends the call; its exception stays set.
bool signalled();

// A call, and the memory that it uses.
struct PyOperation {
  std::shared_ptr<Prepared> prepared;
  Memory input, output;
  std::shared_ptr<Operation> operation = std::make_shared<Operation>();  // done, or under way, once started

  Order order(std::chrono::nanoseconds timeout) const {
    return {prepared.get(), input.data(), output.data(), timeout};
  }
};

class PyCommunicator {
 public:
  PyCommunicator(const PyFabric& fabric, std::uint32_t id, std::vector<int> ranks,
                 std::vector<std::string> labels, std::uint64_t slice_bytes);

  // Throws std::invalid_argument for the program of another rank or size, which would reach for peers that
  // are not there.
  std::shared_ptr<Prepared> prepare(std::shared_ptr<Bound> bound, const Request& request) const;

  Communicator& core() { return communicator_; }
  bool enter() { return communicator_.enter(); }
  void leave() { communicator_.leave(); }
  // By the thread that has entered.
  void run(const std::shared_ptr<Prepared>& prepared, const pybind11::object& input,
           const pybind11::object& output, double timeout_s);
  std::shared_ptr<PyOperation> start(const std::shared_ptr<Prepared>& prepared, const pybind11::object& input,
                                     const pybind11::object& output, double timeout_s);
  // The same in two steps, for an operation that is started again and again.
  std::shared_ptr<PyOperation> hold(const std::shared_ptr<Prepared>& prepared, const pybind11::object& input,
                                    const pybind11::object& output) const;
  void start(const std::shared_ptr<PyOperation>& operation, std::chrono::nanoseconds timeout);
  bool wait(const PyOperation& operation, std::optional<double> timeout_s);
  void close();

 private:
  Communicator communicator_;
  std::vector<std::shared_ptr<PyOperation>> under_way_;
};

}  // namespace pycomm
