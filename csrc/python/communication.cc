#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "python/communicator.h"

namespace py = pybind11;

namespace pycomm {
namespace {

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
  py::class_<Prepared, std::shared_ptr<Prepared>>(m, "Prepared",
                                                  "A request and its program, ready to be called.");
  py::class_<PyCommunicator>(m, "Communicator", "Runs bound programs for an ordered set of ranks.")
      .def(py::init<const PyFabric&, std::uint32_t, std::vector<int>, std::vector<std::string>,
                    std::uint64_t>(),
           py::arg("fabric"), py::arg("id"), py::arg("ranks"), py::arg("labels"),
           py::arg("slice_bytes") = 131072)
      .def("prepare", &PyCommunicator::prepare, py::arg("bound"), py::arg("request"))
      .def("enter", &PyCommunicator::enter,
           "One thread at a time may make calls: true for it, until it leaves; else false.")
      .def("leave", &PyCommunicator::leave)
      .def("run", &PyCommunicator::run, py::arg("prepared"), py::arg("input"), py::arg("output"),
           py::arg("timeout_s"))
      .def("start",
           py::overload_cast<const std::shared_ptr<Prepared>&, const py::object&, const py::object&, double>(
               &PyCommunicator::start),
           py::arg("prepared"), py::arg("input"), py::arg("output"), py::arg("timeout_s"))
      .def("wait", &PyCommunicator::wait, py::arg("operation"), py::arg("timeout_s") = py::none(),
           "Whether the operation is done; raises what it failed with.")
      .def("close", &PyCommunicator::close);
}

}  // namespace pycomm
