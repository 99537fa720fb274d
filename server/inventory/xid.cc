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
constexpr const char* kApplication = "most often an application's fault";
constexpr const char* kHardware = "hardware";
constexpr const char* kFirmware = "firmware or hardware";

constexpr Entry kEntries[] = {
    {13, XidEffect::kCheck, "an exception of the graphics engine", kApplication},
    {31, XidEffect::kCheck, "a page fault in the GPU's memory", kApplication},
    {32, XidEffect::kCheck, "an invalid or damaged push buffer", "the driver or the bus"},
    {38, XidEffect::kReset, "an error of the driver's firmware", kFirmware},
    {43, XidEffect::kCheck, "the GPU has stopped an application's work", kApplication},
    {45, XidEffect::kNone, "work was cleaned up after an earlier error or an ended process", ""},
    {48, XidEffect::kReset, "an ECC error of two bits", kHardware},
    {54, XidEffect::kReset, "auxiliary power is not connected", kHardware},
    {62, XidEffect::kReset, "the internal micro-controller has halted", kFirmware},
    {63, XidEffect::kCheck, "a row of memory was remapped or a page retired", kHardware},
    {64, XidEffect::kReset, "a row of memory could not be remapped, or a page not retired",
     kHardware},
    {69, XidEffect::kCheck, "an error of a graphics engine class", kApplication},
    {74, XidEffect::kReset, "an NVLink error", kHardware},
    {79, XidEffect::kReset, "the GPU has fallen off the bus", kHardware},
    {92, XidEffect::kCheck, "many ECC errors of one bit", kHardware},
    {94, XidEffect::kCheck, "a contained ECC error", kHardware},
    {95, XidEffect::kReset, "an uncontained ECC error", kHardware},
    {109, XidEffect::kCheck, "a context switch took too long", kApplication},
    {119, XidEffect::kReset, "the GPU's system processor does not answer", kFirmware},
    {120, XidEffect::kReset, "an error of the GPU's system processor", kFirmware},
    {136, XidEffect::kReset, "a link could not be trained", kHardware},
    {140, XidEffect::kReset, "an unrecovered ECC error", kHardware},
    {143, XidEffect::kReset, "the GPU could not be initialised", kFirmware},
};

}  // namespace

Xid describe_xid(uint64_t number) {
  const auto* const entry =
      std::ranges::find_if(kEntries, [&](const Entry& e) { return e.number == number; });
  const std::string title = "XID " + std::to_string(number);
  if (entry == std::end(kEntries)) {
    return {number, XidEffect::kCheck, title + ", which NVIDIA's XID catalogue explains"};
  }
  std::string sentence = title + ": " + entry->what;
  if (*entry->cause != '\0') sentence += std::string(" (") + entry->cause + ")";
  return {number, entry->effect, std::move(sentence)};
}

}  // namespace trainyard::server
