#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "program/group.h"
#include "program/program.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace pycomm {
namespace {

Buffer buffer_named(const std::string& wanted) {
  for (Buffer buffer : {Buffer::kIn, Buffer::kOut, Buffer::kTmp, Buffer::kData})
    if (wanted == name(buffer)) return buffer;
  throw std::invalid_argument("unknown buffer '" + wanted + "'; known are in, out, tmp, data");
}

Op op_named(const std::string& wanted) {
  for (Op op : {Op::kSend, Op::kRecv, Op::kRecvReduce, Op::kCopy, Op::kReduce})
    if (wanted == name(op)) return op;
  throw std::invalid_argument("unknown step '" + wanted +
                              "'; known are send, recv, recv_reduce, copy, reduce");
}

void check_position(int i, int n) {
  if (n < 1 || i < 0 || i >= n)
    throw std::invalid_argument("part " + std::to_string(i) + " of " + std::to_string(n) + " does not exist");
}

void check_chunk(std::int64_t index) {
  if (index < 0 || index >= kMostChunks)
    throw std::invalid_argument("a span's chunks are 0.." + std::to_string(kMostChunks - 1) + ", not " +
                                std::to_string(index));
}

Span make_span(const std::string& buffer, std::int32_t start, std::int32_t count, std::int32_t stride) {
  if (start < 0 || count < 0 || stride < 1)
    throw std::invalid_argument("a span needs start >= 0, count >= 0 and stride >= 1");
  check_chunk(start + std::int64_t{std::max(count - 1, 0)} * stride);
  return Span(buffer_named(buffer), start, count, stride);
}

Span moved(const Span& span, const std::string& buffer, std::int32_t offset) {
  span.each([&](Chunk chunk) { check_chunk(std::int64_t{chunk.index} + offset); });
  return span.in(buffer_named(buffer), offset);
}

std::vector<std::tuple<std::string, std::int32_t>> chunks_of(const Span& span) {
  std::vector<std::tuple<std::string, std::int32_t>> chunks;
  span.each([&](Chunk chunk) { chunks.emplace_back(name(chunk.buffer), chunk.index); });
  return chunks;
}

void bind_span(py::module_& m) {
  py::class_<Span>(m, "Span", "Some chunks of a buffer, in order.")
      .def(py::init(&make_span), py::arg("buffer"), py::arg("start"), py::arg("count"), py::arg("stride") = 1)
      .def("__len__", [](const Span& span) { return span.size(); })
      .def(
          "part", [](const Span& span, int i, int n) { return check_position(i, n), span.part(i, n); },
          py::arg("i"), py::arg("n"), "The i-th of n runs of nearly equal length.")
      .def(
          "every", [](const Span& span, int i, int n) { return check_position(i, n), span.every(i, n); },
          py::arg("i"), py::arg("n"), "Every n-th chunk, from the i-th on.")
      .def("within", &moved, py::arg("buffer"), py::arg("offset") = 0,
           "The same chunk numbers, moved up, in another buffer.")
      .def(
          "split",
          [](const Span& span, int n) {
            check_position(0, n);
            std::vector<Span> parts;
            for (int i = 0; i < n; ++i) parts.push_back(span.part(i, n));
            return parts;
          },
          py::arg("n"), "All n parts.")
      .def("__add__", &Span::operator+, py::arg("other"))
      .def(
          "__eq__", [](const Span& a, const Span& b) { return a == b; }, py::arg("other"))
      .def_property_readonly("chunks", &chunks_of)
      .def("__repr__", &Span::text);
}

void bind_group(py::module_& m) {
  py::class_<Group>(m, "Group", "An ordered set of ranks, seen from the one at `index`.")
      .def(py::init([](std::vector<int> ranks, int index) {
             check_position(index, static_cast<int>(ranks.size()));
             return Group(std::move(ranks), index);
           }),
           py::arg("ranks"), py::arg("index"))
      .def_property_readonly("size", &Group::size)
      .def_property_readonly("index", &Group::index)
      .def_property_readonly("ranks", &Group::ranks)
      .def("peer", &Group::peer, py::arg("offset"), "The rank `offset` places on, round the group.")
      .def("at", &Group::at, py::arg("position"), "The rank at a position, counted modulo the size.");
}

void bind_step(py::module_& m) {
  py::class_<Step>(m, "Step", "One action of a program.")
      .def(py::init<>())
      .def_property(
          "op", [](const Step& s) { return std::string(name(s.op)); },
          [](Step& s, const std::string& op) { s.op = op_named(op); })
      .def_readwrite("peer", &Step::peer)
      .def_property(
          "to", [](const Step& s) { return std::make_tuple(s.to[0], s.to[1]); },
          [](Step& s, std::tuple<int, int> to) { s.to = {std::get<0>(to), std::get<1>(to)}; })
      .def_readwrite("dst", &Step::dst)
      .def_readwrite("src", &Step::src)
      .def_readwrite("addend", &Step::addend)
      .def_property_readonly("src_form", [](const Step& s) { return std::string(name(s.src_form)); })
      .def_property_readonly("other_form", [](const Step& s) { return std::string(name(s.other_form)); })
      .def_property_readonly("dst_form", [](const Step& s) { return std::string(name(s.dst_form)); })
      .def("copy", [](const Step& s) { return Step(s); })
      .def(
          "__eq__", [](const Step& a, const Step& b) { return a == b; }, py::arg("other"))
      .def("__repr__", &Step::text);
}

std::tuple<int, int> layout_of(const Program& p, const std::string& buffer) {
  const Layout& layout = p.layout(buffer_named(buffer));
  return {layout.blocks, layout.chunks};
}

void set_layout(Program& p, const std::string& buffer, int blocks, int chunks) {
  const Layout layout{blocks, chunks};
  layout.check();
  p.layout(buffer_named(buffer)) = layout;
}

Program with_channels(const Program& p, std::vector<std::vector<Step>> channels) {
  Program changed = p;
  changed.channels() = std::move(channels);
  if (changed.channels().empty()) changed.channels().emplace_back();
  return changed;
}

void bind_program(py::module_& m) {
  py::class_<Program>(m, "Program", "What one rank does in one collective, as plain data.")
      .def(py::init([](int rank, int world_size) {
             check_position(rank, world_size);
             return Program(rank, world_size);
           }),
           py::arg("rank"), py::arg("world_size"))
      .def("send", &Program::send, py::arg("peer"), py::arg("span"))
      .def("recv", &Program::recv, py::arg("peer"), py::arg("span"))
      .def("recv_reduce", &Program::recv_reduce, py::arg("peer"), py::arg("span"))
      .def("copy", &Program::copy, py::arg("dst"), py::arg("src"))
      .def("reduce", &Program::reduce, py::arg("dst"), py::arg("addend"),
           "dst = dst (+) addend, on this rank.")
      .def("channel", &Program::channel, py::arg("index"), "Steps that follow go to this channel.")
      .def_property_readonly("rank", &Program::rank)
      .def_property_readonly("world_size", &Program::world_size)
      .def("layout", &layout_of, py::arg("buffer"), "(blocks, chunks of each) of a buffer.")
      .def("set_layout", &set_layout, py::arg("buffer"), py::arg("blocks"), py::arg("chunks"))
      .def_property_readonly("channels", [](const Program& p) { return p.channels(); })
      .def("with_channels", &with_channels, py::arg("channels"))
      .def_property_readonly("peers", &Program::peers)
      .def("__len__", &Program::step_count)
      .def("pack", [](const Program& p) { return py::bytes(p.pack()); })
      .def_static(
          "parse", [](const py::bytes& bytes) { return Program::parse(bytes); }, py::arg("bytes"))
      .def(
          "__eq__", [](const Program& a, const Program& b) { return a == b; }, py::arg("other"))
      .def("__str__", &Program::text);
}

}  // namespace

void bind_programs(py::module_& m) {
  bind_span(m);
  bind_group(m);
  bind_step(m);
  bind_program(m);
}

}  // namespace pycomm
