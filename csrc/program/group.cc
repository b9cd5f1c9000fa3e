#include "program/group.h"

namespace pycomm {

Span Shares::range(int first, int last) const {
  Span joined;
  for (int i = first; i < last; ++i) joined = joined + (*this)[i];
  return joined;
}

Shares split(const Span& data, const Group& group) {
  std::vector<Span> parts;
  for (int i = 0; i < group.size(); ++i) parts.push_back(data.part(i, group.size()));
  return Shares(std::move(parts), group.index());
}

}  // namespace pycomm
