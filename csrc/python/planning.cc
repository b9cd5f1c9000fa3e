#include <string>
#include <utility>
#include <vector>

#include "algorithms/recipe.h"
#include "program/passes.h"
#include "program/verify.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace pycomm {
namespace {

using Pairs = std::vector<std::pair<int, int>>;

Goal make_goal(const std::string& collective, int world_size, int root) {
  const Goal goal{collective_named(collective), world_size, root};
  if (world_size < 1) throw std::invalid_argument("a collective needs at least one rank");
  if (root < 0 || root >= world_size)
    throw std::invalid_argument("root " + std::to_string(root) + " is not in 0.." +
                                std::to_string(world_size - 1));
  return goal;
}

void bind_recipe(py::module_& m) {
  py::class_<Goal>(m, "Goal", "A collective: what every rank must hold at the end.")
      .def(py::init(&make_goal), py::arg("collective"), py::arg("world_size"), py::arg("root") = 0)
      .def_property_readonly("collective", [](const Goal& g) { return std::string(name(g.collective)); })
      .def_readonly("world_size", &Goal::world_size)
      .def_readonly("root", &Goal::root)
      .def_property_readonly("in_blocks", &Goal::in_blocks)
      .def("out_blocks", &Goal::out_blocks, py::arg("rank"))
      .def_property_readonly("data_blocks", &Goal::data_blocks);
  py::class_<Level>(m, "Level", "A partition of the ranks at one level, and the algorithm inside each group.")
      .def(py::init([](std::vector<std::vector<int>> groups, std::string algorithm) {
             return Level{std::move(groups), std::move(algorithm)};
           }),
           py::arg("groups"), py::arg("algorithm"))
      .def_readonly("groups", &Level::groups)
      .def_readonly("algorithm", &Level::algorithm);
  py::class_<Recipe>(m, "Recipe", "How a collective is to be done.")
      .def(py::init([](const Goal& goal, std::vector<Level> levels, int channels) {
             return Recipe{goal, std::move(levels), channels};
           }),
           py::arg("goal"), py::arg("levels"), py::arg("channels") = 1)
      .def_readonly("goal", &Recipe::goal)
      .def_readonly("levels", &Recipe::levels)
      .def_readonly("channels", &Recipe::channels);
}

void bind_traffic(py::module_& m) {
  py::class_<Traffic>(m, "Traffic", "What a proof counted; floats are in blocks.")
      .def_readonly("local", &Traffic::local)
      .def_readonly("rail", &Traffic::rail)
      .def_readonly("cross_rail", &Traffic::cross_rail)
      .def_readonly("steps", &Traffic::steps)
      .def_readonly("messages", &Traffic::messages)
      .def_readonly("same_bits", &Traffic::same_bits);
}

Traffic verify_programs(const std::vector<Program>& programs, const Goal& goal, std::vector<int> node,
                        std::vector<int> rail, const Pairs& declared) {
  return verify(programs, goal, {std::move(node), std::move(rail)}, {declared.begin(), declared.end()});
}

Traffic prove(const Recipe& recipe, std::vector<int> node, std::vector<int> rail, const Pairs& declared) {
  return verify(build(recipe), recipe.goal, {std::move(node), std::move(rail)},
                {declared.begin(), declared.end()});
}

std::vector<Program> lowered(std::vector<Program> programs, const Goal& goal) {
  lower(programs, goal);
  return programs;
}

}  // namespace

void bind_planning(py::module_& m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  bind_recipe(m);
  bind_traffic(m);
  m.def("build", &build, py::arg("recipe"), Release(), "Every rank's program, lowered.");
  m.def("expand", &expand, py::arg("recipe"), py::arg("rank"), Release(), "One rank's, before any pass.");
  m.def("lower", &lowered, py::arg("programs"), py::arg("goal"), Release(),
        "The passes place, fuse and mark over all ranks' programs.");
  m.def("verify", &verify_programs, py::arg("programs"), py::arg("goal"),
        py::arg("node") = std::vector<int>{}, py::arg("rail") = std::vector<int>{},
        py::arg("declared") = Pairs{}, Release(), "Proves programs or raises ProgramError.");
  m.def("prove", &prove, py::arg("recipe"), py::arg("node") = std::vector<int>{},
        py::arg("rail") = std::vector<int>{}, py::arg("declared") = Pairs{}, Release(),
        "build, then verify.");
}

}  // namespace pycomm
