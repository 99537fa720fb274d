#include "server/inventory/xid.h"

#include <algorithm>
#include <iterator>

namespace trainyard::server {
namespace {

struct Entry {
  uint64_t number;
  XidEffect effect;
  const char* what;
  const char* cause;
};
constexpr const char* kApplication = "most often an application error";
constexpr const char* kHardware = "hardware";
constexpr const char* kFirmware = "firmware or hardware";

constexpr Entry kEntries[] = {
    {13, XidEffect::kCheck, "a graphics engine exception", kApplication},
    {31, XidEffect::kCheck, "a GPU memory page fault", kApplication},
    {32, XidEffect::kCheck, "an invalid or damaged push buffer", "the driver or the bus"},
    {38, XidEffect::kReset, "a driver firmware error", kFirmware},
    {43, XidEffect::kCheck, "the GPU stopped processing", kApplication},
    {45, XidEffect::kNone, "preemptive cleanup, due to previous errors", ""},
    {48, XidEffect::kReset, "a double-bit ECC error", kHardware},
    {54, XidEffect::kReset, "auxiliary power is not connected", kHardware},
    {62, XidEffect::kReset, "the internal micro-controller has halted", kFirmware},
    {63, XidEffect::kCheck, "a row of memory was remapped or a page retired", kHardware},
    {64, XidEffect::kReset, "a row of memory could not be remapped, or a page not retired",
     kHardware},
    {69, XidEffect::kCheck, "a graphics engine class error", kApplication},
    {74, XidEffect::kReset, "an NVLink error", kHardware},
    {79, XidEffect::kReset, "the GPU has fallen off the bus", kHardware},
    {92, XidEffect::kCheck, "many single-bit ECC errors", kHardware},
    {94, XidEffect::kCheck, "a contained ECC error", kHardware},
    {95, XidEffect::kReset, "an uncontained ECC error", kHardware},
    {109, XidEffect::kCheck, "a context switch took too long", kApplication},
    {119, XidEffect::kReset, "the GPU's system processor does not answer", kFirmware},
    {120, XidEffect::kReset, "an error in the GPU's system processor", kFirmware},
    {136, XidEffect::kReset, "link training failed", kHardware},
    {140, XidEffect::kReset, "an unrecovered ECC error", kHardware},
    {143, XidEffect::kReset, "the GPU could not be initialized", kFirmware},
};

}  // namespace

Xid describe_xid(uint64_t number) {
  const auto* const entry =
      std::ranges::find_if(kEntries, [&](const Entry& e) { return e.number == number; });
  const std::string title = "XID " + std::to_string(number);
  if (entry == std::end(kEntries)) {
    return {number, XidEffect::kCheck, title + ", explained in NVIDIA's XID catalog"};
  }
  std::string sentence = title + ": " + entry->what;
  if (*entry->cause != '\0') sentence += std::string(" (") + entry->cause + ")";
  return {number, entry->effect, std::move(sentence)};
}

}  // namespace trainyard::server
