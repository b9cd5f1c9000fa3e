#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "executor/communicator.h"
#include "executor/progress.h"
#include "python/bindings.h"
#include "python/memory.h"

namespace py = pybind11;

namespace pycomm {
namespace {

constexpr std::uint64_t kLeastSlice = 64;  // holds an element of any type
using Seconds = std::chrono::duration<double>;

// A fabric and the progress thread that serves its communicators.
struct PyFabric {
  explicit PyFabric(std::shared_ptr<Fabric> made)
      : fabric(std::move(made)), progress(std::make_shared<Progress>(fabric)) {}

  std::shared_ptr<Fabric> fabric;
  std::shared_ptr<Progress> progress;
};

std::chrono::nanoseconds nanoseconds(double seconds) {
  constexpr double kLongest = 1e9;  // 30 years: for ever, and no overflow
  if (std::isnan(seconds)) throw std::invalid_argument("a timeout must be a number of seconds");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(std::min(seconds, kLongest)));
}

// A signal handler that raised ends the call; its exception stays set.
bool signalled() {
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

// One call's operation and the memory that it uses.
struct PyOperation {
  std::shared_ptr<Operation> operation;
  std::vector<Memory> memory;
};

class PyCommunicator {
 public:
  PyCommunicator(const PyFabric& fabric, std::uint32_t id, std::vector<int> ranks,
                 std::vector<std::string> labels, std::uint64_t slice_bytes)
      : communicator_(members(fabric, id, std::move(ranks), std::move(labels)), fabric.progress,
                      slice_bytes) {
    if (slice_bytes < kLeastSlice) throw std::invalid_argument("a slice needs at least 64 bytes");
  }

  void run(const std::shared_ptr<Bound>& bound, const py::object& input, const py::object& output,
           const Request& request, double timeout_s) {
    check(*bound);
    const auto [in, out] = borrow(*bound, input, output);
    const Order order{bound, request, in.data(), out.data(), nanoseconds(timeout_s)};
    const py::gil_scoped_release release;
    communicator_.run(order, signalled);
  }

  std::shared_ptr<PyOperation> start(const std::shared_ptr<Bound>& bound, const py::object& input,
                                     const py::object& output, const Request& request, double timeout_s) {
    std::erase_if(under_way_, [](const auto& held) { return held->operation->done(); });
    check(*bound);
    auto [in, out] = borrow(*bound, input, output);
    const Order order{bound, request, in.data(), out.data(), nanoseconds(timeout_s)};
    auto started = std::make_shared<PyOperation>();
    {
      const py::gil_scoped_release release;
      started->operation = communicator_.start(order);
    }
    started->memory.push_back(std::move(in));
    started->memory.push_back(std::move(out));
    under_way_.push_back(started);  // the memory is in use even if the caller drops the operation
    return started;
  }

  bool wait(const PyOperation& operation, std::optional<double> timeout_s) {
    const auto timeout = timeout_s ? std::optional(nanoseconds(*timeout_s)) : std::nullopt;
    const py::gil_scoped_release release;
    return communicator_.wait(*operation.operation, timeout, signalled);
  }

  void close() {
    {
      const py::gil_scoped_release release;
      communicator_.close();
    }
    under_way_.clear();
  }

 private:
  static Members members(const PyFabric& fabric, std::uint32_t id, std::vector<int> ranks,
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
    if (members.rank < 0)
      throw std::invalid_argument("a communicator's ranks must include this process's own");
    return members;
  }

  // A program of another rank or size would reach for peers that are not there.
  void check(const Bound& bound) const {
    const Program& program = bound.program();
    const Members& members = communicator_.members();
    if (program.rank() != members.rank || program.world_size() != members.size())
      throw std::invalid_argument("the program of rank " + std::to_string(program.rank()) + " of " +
                                  std::to_string(program.world_size()) + " cannot run as rank " +
                                  std::to_string(members.rank) + " of " + std::to_string(members.size()));
  }

  static std::pair<Memory, Memory> borrow(const Bound& bound, const py::object& input,
                                          const py::object& output) {
    std::pair<Memory, Memory> memory(std::piecewise_construct,
                                     std::forward_as_tuple(input, false, bound.input_bytes(), "the input"),
                                     std::forward_as_tuple(output, true, bound.output_bytes(), "the output"));
    if (bound.uses(Area::kIn) && !memory.first.held())
      throw CallError(ErrorKind::kInvalid, -1, "this rank must give an input");
    if (bound.uses(Area::kOut) && !memory.second.held())
      throw CallError(ErrorKind::kInvalid, -1, "this rank must give an output");
    return memory;
  }

  Communicator communicator_;
  std::vector<std::shared_ptr<PyOperation>> under_way_;
};

void bind_fabric(py::module_& m) {
  py::class_<LinkState>(m, "LinkState", "One link of an endpoint; bytes of payload.")
      .def_readonly("sent_bytes", &LinkState::sent_bytes)
      .def_readonly("received_bytes", &LinkState::received_bytes)
      .def_readonly("lost", &LinkState::lost, "Why the link is gone; empty while it lives.");
  py::class_<PyFabric, std::shared_ptr<PyFabric>>(m, "Fabric", "All that one rank needs to reach the others.")
      .def(py::init([](int rank, int size) {
             if (size < 1 || rank < 0 || rank >= size)
               throw std::invalid_argument("a fabric needs 0 <= rank < size");
             return std::make_shared<PyFabric>(std::make_shared<Fabric>(rank, size));
           }),
           py::arg("rank"), py::arg("size"))
      .def_property_readonly("rank", [](const PyFabric& f) { return f.fabric->rank(); })
      .def_property_readonly("size", [](const PyFabric& f) { return f.fabric->size(); })
      .def_property_readonly("segment_fd", [](const PyFabric& f) { return f.fabric->segment_fd(); })
      .def_property_readonly("event_fd", [](const PyFabric& f) { return f.fabric->event_fd(); })
      .def(
          "add_shm",
          [](PyFabric& f, int peer, int segment_fd, int event_fd, int pidfd) {
            f.fabric->add_shm(peer, segment_fd, event_fd, pidfd);
          },
          py::arg("peer"), py::arg("segment_fd"), py::arg("event_fd"), py::arg("pidfd") = -1,
          "A peer on this node. Takes the descriptors.")
      .def(
          "add_tcp", [](PyFabric& f, int peer, const std::vector<int>& fds) { f.fabric->add_tcp(peer, fds); },
          py::arg("peer"), py::arg("socket_fds"),
          "Connected, authenticated sockets: the links of one endpoint. Takes the descriptors.")
      .def(
          "connected", [](const PyFabric& f, int peer) { return f.fabric->connected(peer); }, py::arg("peer"))
      .def(
          "transport",
          [](PyFabric& f, int peer) { return std::string(f.fabric->endpoint(peer).transport()); },
          py::arg("peer"))
      .def(
          "counters",
          [](PyFabric& f, int peer) {
            const Counters c = f.fabric->counters(peer);
            return std::make_tuple(c.sent_bytes, c.received_bytes, c.sent_messages, c.received_messages);
          },
          py::arg("peer"), "(sent bytes, received bytes, sent messages, received messages), payload only.")
      .def(
          "links", [](PyFabric& f, int peer) { return f.fabric->links(peer); }, py::arg("peer"),
          "The links of a TCP peer, in the order in which they were given; none for another transport.")
      .def(
          "cut_link", [](PyFabric& f, int peer, std::size_t link) { f.fabric->cut_link(peer, link); },
          py::arg("peer"), py::arg("link"),
          "Cuts a link, for drills: both sides come to notice, as of a broken cable.")
      .def(
          "set_waiting",
          [](PyFabric& f, std::int64_t spin_ns, std::int64_t yield_ns, std::int64_t nap_ns) {
            using std::chrono::nanoseconds;
            f.fabric->waiter().set_limits({nanoseconds(spin_ns), nanoseconds(yield_ns), nanoseconds(nap_ns)});
          },
          py::arg("spin_ns"), py::arg("yield_ns"), py::arg("nap_ns"))
      .def(
          "set_single_copy",
          [](PyFabric& f, std::uint64_t least_bytes) { f.fabric->set_single_copy(least_bytes); },
          py::arg("least_bytes"),
          "Pieces of messages from this size on are read by peers of this node out of this rank's memory.")
      .def(
          "why_not_single_copy", [](PyFabric& f, int peer) { return f.fabric->why_not_single_copy(peer); },
          py::arg("peer"), "Why this rank cannot read the memory of a peer on its node; empty where it can.");
  m.def(
      "memory_fabrics",
      [](int size) {
        std::vector<std::shared_ptr<PyFabric>> fabrics;
        for (auto& fabric : Fabric::in_memory(size))
          fabrics.push_back(std::make_shared<PyFabric>(std::move(fabric)));
        return fabrics;
      },
      py::arg("size"), "Fabrics for ranks that are threads of this process.");
}

Request make_request(const std::string& collective, const std::string& reduction, const std::string& dtype,
                     std::uint64_t count, int root, std::uint64_t plan) {
  Request request;
  request.collective =
      collective == "barrier" ? Request::kBarrier : static_cast<std::uint8_t>(collective_named(collective));
  request.reduction = static_cast<std::uint8_t>(reduction_named(reduction));
  request.dtype = static_cast<std::uint8_t>(dtype_named(dtype));
  request.root = root;
  request.count = count;
  request.plan = plan;
  return request;
}

void bind_request(py::module_& m) {
  py::class_<Request>(m, "Request", "What one rank asks of one call; the ranks' requests must be equal.")
      .def(py::init(&make_request), py::arg("collective"), py::arg("reduction"), py::arg("dtype"),
           py::arg("count"), py::arg("root") = 0, py::arg("plan") = 0)
      .def_property_readonly("fingerprint", &Request::fingerprint)
      .def("text", &Request::text, py::arg("sequence"));
  py::class_<Bound, std::shared_ptr<Bound>>(m, "Bound", "A program with its count, dtype and reduction.")
      .def(py::init([](const Program& program, const Goal& goal, std::uint64_t count,
                       const std::string& dtype, const std::string& reduction) {
             return std::make_shared<Bound>(program, goal,
                                            Binding{count, dtype_named(dtype), reduction_named(reduction)});
           }),
           py::arg("program"), py::arg("goal"), py::arg("count"), py::arg("dtype"),
           py::arg("reduction") = "sum")
      .def_property_readonly("input_bytes", &Bound::input_bytes)
      .def_property_readonly("output_bytes", &Bound::output_bytes);
}

}  // namespace

void bind_communication(py::module_& m) {
  bind_fabric(m);
  bind_request(m);
  py::class_<PyOperation, std::shared_ptr<PyOperation>>(m, "Operation", "A call under way.")
      .def_property_readonly("done", [](const PyOperation& o) { return o.operation->done(); });
  py::class_<PyCommunicator>(m, "Communicator", "Runs bound programs for an ordered set of ranks.")
      .def(py::init<const PyFabric&, std::uint32_t, std::vector<int>, std::vector<std::string>,
                    std::uint64_t>(),
           py::arg("fabric"), py::arg("id"), py::arg("ranks"), py::arg("labels"),
           py::arg("slice_bytes") = 131072)
      .def("run", &PyCommunicator::run, py::arg("bound"), py::arg("input"), py::arg("output"),
           py::arg("request"), py::arg("timeout_s"))
      .def("start", &PyCommunicator::start, py::arg("bound"), py::arg("input"), py::arg("output"),
           py::arg("request"), py::arg("timeout_s"))
      .def("wait", &PyCommunicator::wait, py::arg("operation"), py::arg("timeout_s") = py::none(),
           "Whether the operation is done; raises what it failed with.")
      .def("close", &PyCommunicator::close);
}

}  // namespace pycomm
