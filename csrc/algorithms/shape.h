// The table of leaf algorithms by name: a new shape is one file and one row of shape.cc.
#pragma once

#include <stdexcept>
#include <string>

#include "algorithms/algorithms.h"

namespace pycomm {

// Null where the shape has no such form.
struct Shape {
  const char* name;
  int (*scatter_parts)(int ranks);     // into how many shares it cuts the data of a group
  int (*all_reduce_parts)(int ranks);  // the same where it does an all_reduce by itself
  void (*reduce_scatter)(Program&, const Group&, const Shares&);
  void (*all_gather)(Program&, const Group&, const Shares&);
  void (*all_reduce)(Program&, const Group&, const Span&);
  void (*broadcast)(Program&, const Group&, int root, const Span&);
  void (*reduce)(Program&, const Group&, int root, const Span&);
  void (*all_to_all)(Program&, const Group&, const Shares&, const Shares&);
};

// Throws std::invalid_argument that lists the known names.
const Shape& shape_named(const std::string& name);

// The form `form` of a shape, or std::invalid_argument: "tree has no all_to_all".
template <typename Form>
Form need(const Shape& shape, Form form, const char* what) {
  if (form == nullptr) throw std::invalid_argument(std::string(shape.name) + " has no " + what + " form");
  return form;
}

}  // namespace pycomm
