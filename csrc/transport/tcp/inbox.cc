#include "transport/tcp/inbox.h"

#include <algorithm>

namespace pycomm::tcp {

void Inbox::fill() {
  std::memmove(bytes_.data(), bytes_.data() + begin_, size());
  end_ -= begin_;
  begin_ = 0;
  const iovec piece{bytes_.data() + end_, kBytes - end_};
  const std::size_t got = socket_.read({&piece, 1});
  dry_ = got < piece.iov_len;
  end_ += got;
  progress_ += got;
}

FrameHeader Inbox::header() {
  FrameHeader header;
  std::memcpy(&header, bytes_.data() + begin_, sizeof header);
  begin_ += sizeof header;
  progress_ += sizeof header;
  return header;
}

std::size_t Inbox::payload(std::span<std::byte> to, bool whole, bool large) {
  if (size() != 0) {
    const std::size_t got = std::min(size(), to.size());
    std::memcpy(to.data(), bytes_.data() + begin_, got);
    begin_ += got;
    progress_ += got;
    return got;
  }
  // What follows a large frame is likely as large: then only its header, lest its payload be copied twice.
  const std::size_t next = !whole ? 0 : large ? sizeof(FrameHeader) : kBytes;
  const std::array<iovec, 2> pieces{{{to.data(), to.size()}, {bytes_.data(), next}}};
  const std::size_t got = socket_.read({pieces.data(), next != 0 ? 2UL : 1UL});
  dry_ = got < to.size() + next;
  progress_ += got;
  begin_ = 0;
  end_ = got > to.size() ? got - to.size() : 0;
  return std::min(got, to.size());
}

}  // namespace pycomm::tcp
