// server/inventory/xid.h: what the errors mean that NVIDIA's driver reports of a GPU by number.
//
// Source: NVIDIA XID Errors, catalog of the GPU deployment documentation.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::server {

enum class XidEffect : uint8_t {
  kNone,   // follows from another, or from a process that was ended
  kCheck,  // caused by an application, or hardware that repaired itself: the GPU is checked
  kReset,  // hardware or its firmware, until the GPU is reset
};

struct Xid {
  uint64_t number = 0;
  XidEffect effect = XidEffect::kCheck;
  std::string sentence;  // "XID 79: the GPU has fallen off the bus (hardware)"
};
/// An unknown number requires a check.
Xid describe_xid(uint64_t number);

}  // namespace trainyard::server
