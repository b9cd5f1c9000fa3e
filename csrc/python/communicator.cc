#include "python/communicator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

namespace py = pybind11;

namespace pycomm {
namespace {

constexpr std::uint64_t kLeastSlice = 64;  // holds an element of any type

Members members_of(const PyFabric& fabric, std::uint32_t id, std::vector<int> ranks,
                   std::vector<std::string> labels) {
  Members members{fabric.fabric, id, std::move(ranks), std::move(labels), -1};
  if (members.labels.size() != members.ranks.size())
    throw std::invalid_argument("a communicator needs one label for each of its ranks");
  for (int member = 0; member < members.size(); ++member) {
    const int rank = members.job_rank(member);
    if (rank < 0 || rank >= fabric.fabric->size())
      throw std::invalid_argument("the fabric has no rank " + std::to_string(rank));
    if (std::count(members.ranks.begin(), members.ranks.end(), rank) > 1)
      throw std::invalid_argument("rank " + std::to_string(rank) + " comes twice in a communicator");
  }
  for (int member = 0; member < members.size(); ++member)
    if (members.job_rank(member) == fabric.fabric->rank()) members.rank = member;
  if (members.rank < 0) throw std::invalid_argument("a communicator's ranks must include this process's own");
  return members;
}

}  // namespace

std::chrono::nanoseconds nanoseconds(double seconds) {
  constexpr double kLongest = 1e9;  // 30 years: for ever, and no overflow
  if (std::isnan(seconds)) throw std::invalid_argument("a timeout must be a number of seconds");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(seconds, kLongest)));
}

bool signalled() {
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

PyCommunicator::PyCommunicator(const PyFabric& fabric, std::uint32_t id, std::vector<int> ranks,
                               std::vector<std::string> labels, std::uint64_t slice_bytes)
    : communicator_(members_of(fabric, id, std::move(ranks), std::move(labels)), fabric.progress,
                    slice_bytes) {
  if (slice_bytes < kLeastSlice) throw std::invalid_argument("a slice needs at least 64 bytes");
}

std::shared_ptr<Prepared> PyCommunicator::prepare(std::shared_ptr<Bound> bound,
                                                  const Request& request) const {
  const Program& program = bound->program();
  const Members& members = communicator_.members();
  if (program.rank() != members.rank || program.world_size() != members.size())
    throw std::invalid_argument("the program of rank " + std::to_string(program.rank()) + " of " +
                                std::to_string(program.world_size()) + " cannot run as rank " +
                                std::to_string(members.rank) + " of " + std::to_string(members.size()));
  return communicator_.prepare(std::move(bound), request);
}

std::shared_ptr<PyOperation> PyCommunicator::hold(const std::shared_ptr<Prepared>& prepared,
                                                  const py::object& input, const py::object& output) const {
  if (!prepared->is_for(communicator_.members()))
    throw std::invalid_argument("the call was prepared for another communicator");
  const Bound& bound = prepared->bound();
  auto held = std::make_shared<PyOperation>(
      PyOperation{prepared, Memory(input, false, bound.input_bytes(), "the input"),
                  Memory(output, true, bound.output_bytes(), "the output")});
  if (bound.uses(Area::kIn) && !held->input.held())
    throw CallError(ErrorKind::kInvalid, -1, "this rank must give an input");
  if (bound.uses(Area::kOut) && !held->output.held())
    throw CallError(ErrorKind::kInvalid, -1, "this rank must give an output");
  return held;
}

void PyCommunicator::run(const std::shared_ptr<Prepared>& prepared, const py::object& input,
                         const py::object& output, double timeout_s) {
  const auto held = hold(prepared, input, output);
  if (communicator_.begin(held->order(nanoseconds(timeout_s)))) return;
  const py::gil_scoped_release release;
  communicator_.finish(signalled);
}

std::shared_ptr<PyOperation> PyCommunicator::start(const std::shared_ptr<Prepared>& prepared,
                                                   const py::object& input, const py::object& output,
                                                   double timeout_s) {
  const auto held = hold(prepared, input, output);
  start(held, nanoseconds(timeout_s));
  return held;
}

void PyCommunicator::start(const std::shared_ptr<PyOperation>& operation, std::chrono::nanoseconds timeout) {
  std::erase_if(under_way_, [](const auto& held) { return held->operation->done(); });
  {
    const py::gil_scoped_release release;
    communicator_.start(operation->operation, operation->order(timeout));
  }
  under_way_.push_back(operation);  // the memory is in use even if the caller drops the operation
}

bool PyCommunicator::wait(const PyOperation& operation, std::optional<double> timeout_s) {
  const auto timeout = timeout_s ? std::optional(nanoseconds(*timeout_s)) : std::nullopt;
  const py::gil_scoped_release release;
  return communicator_.wait(*operation.operation, timeout, signalled);
}

void PyCommunicator::close() {
  {
    const py::gil_scoped_release release;
    communicator_.close();
  }
  under_way_.clear();
}

}  // namespace pycomm
