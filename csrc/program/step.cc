#include "program/step.h"

namespace pycomm {

const char* name(Op op) {
  switch (op) {
    case Op::kSend:
      return "send";
    case Op::kRecv:
      return "recv";
    case Op::kRecvReduce:
      return "recv_reduce";
    case Op::kCopy:
      return "copy";
    case Op::kReduce:
      return "reduce";
  }
  return "?";
}

const char* name(Form form) {
  switch (form) {
    case Form::kRaw:
      return "raw";
    case Form::kPartial:
      return "partial";
    case Form::kComplete:
      return "complete";
  }
  return "?";
}

std::string Step::text() const {
  const std::string verb = name(op);
  std::string text;
  switch (op) {
    case Op::kSend:
      return verb + " " + src.text() + " -> " + std::to_string(peer);
    case Op::kCopy:
      return verb + " " + dst.text() + " = " + src.text();
    case Op::kReduce:
      return verb + " " + dst.text() + " = " + src.text() + " + " + addend.text();
    case Op::kRecv:
      text = verb + " " + dst.text();
      break;
    case Op::kRecvReduce:
      text = verb + " " + dst.text();
      if (!(src == dst)) text += " = " + src.text() + " +";
      break;
  }
  text += " <- " + std::to_string(peer);
  for (int target : to)
    if (target >= 0) text += " -> " + std::to_string(target);
  return text;
}

}  // namespace pycomm
