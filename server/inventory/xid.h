// server/inventory/xid.h: the meaning of the numbered GPU errors (XIDs) that NVIDIA's driver
// reports.
//
// Source: the catalog "NVIDIA XID Errors" in NVIDIA's GPU deployment documentation.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::server {

enum class XidEffect : uint8_t {
  kNone,   // a consequence of another error or of an ended process
  kCheck,  // caused by an application, or hardware that repaired itself: the GPU must be checked
  kReset,  // a hardware or firmware fault: the GPU is unusable until it is reset
};

struct Xid {
  uint64_t number = 0;
  XidEffect effect = XidEffect::kCheck;
  std::string sentence;  // such as "XID 79: the GPU has fallen off the bus (hardware)"
};
/// Returns the meaning of a number. An unknown number gets kCheck.
Xid describe_xid(uint64_t number);

}  // namespace trainyard::server
