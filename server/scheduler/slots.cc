#include "server/scheduler/slots.h"

#include <algorithm>

namespace trainyard::server {
namespace {

const char* noun_of(DeviceKind kind) { return kind == DeviceKind::kGpu ? "GPU" : "CPU"; }

// "a GPU", "2 GPUs of one model"
std::string wanted(DeviceKind kind, int32_t count) {
  if (count > 1) return std::to_string(count) + " " + noun_of(kind) + "s of one model";
  return std::string("a ") + noun_of(kind);
}

}  // namespace

Slots::Slots(const std::vector<Device>& devices, const std::vector<PlacedJob>& placed)
    : devices_(devices) {
  for (const Device& d : devices_) {
    free_[d.name] = d.slots;
    const bool usable = d.schedulable && d.slots > 0;
    Alike& group = alike_[{d.kind, alike(d)}];
    group.usable += usable;
    group.usable_soon += usable || d.checking || d.busy;
    checks_any_ |= d.checking;
  }
  for (const PlacedJob& job : placed) {
    for (const std::string& device : job.devices) --free_[device];
  }
}

bool Slots::has_kind(DeviceKind kind, int32_t count) const {
  return std::ranges::any_of(
      alike_, [&](const auto& a) { return a.first.first == kind && a.second.usable >= count; });
}

bool Slots::will_have_kind(DeviceKind kind, int32_t count) const {
  return std::ranges::any_of(alike_, [&](const auto& a) {
    return a.first.first == kind && a.second.usable_soon >= count;
  });
}

bool Slots::lists_kind(DeviceKind kind) const {
  return std::ranges::any_of(devices_, [&](const Device& d) { return d.kind == kind; });
}

std::vector<const Device*> Slots::find_free(DeviceKind kind, int32_t count) const {
  for (const Device& first : devices_) {
    if (first.kind != kind || !is_free(first)) continue;
    std::vector<const Device*> found;
    for (const Device& d : devices_) {
      const bool fits = d.kind == kind && alike(d) == alike(first) && is_free(d);
      if (std::ssize(found) < count && fits) found.push_back(&d);
    }
    if (std::ssize(found) == count) return found;
  }
  return {};
}

void Slots::keep(DeviceKind kind, int32_t count) {
  for (const Device& d : devices_) {
    if (d.kind == kind && alike_.at({d.kind, alike(d)}).usable_soon >= count) {
      kept_.insert(d.name);
    }
  }
}

bool Slots::is_free(const Device& d) const {
  return d.schedulable && free_.at(d.name) > 0 && !kept_.contains(d.name);
}

Choice choose_kind(const DeviceRequest& asked, const Slots& slots, const std::string& gpu_note) {
  const auto assigned = [](DeviceKind kind, std::string message) {
    return Choice{kind, "DEVICE_ASSIGNED", std::move(message)};
  };
  if (asked.wish == DeviceWish::kCpu)
    return assigned(DeviceKind::kCpu, "The job asked for the CPU.");
  if (asked.wish == DeviceWish::kGpu)
    return assigned(DeviceKind::kGpu,
                    "The job asked for " + wanted(DeviceKind::kGpu, asked.gpus) + ".");
  if (asked.kind_before && slots.will_have_kind(*asked.kind_before))
    return assigned(*asked.kind_before, std::string("The same kind of device as before, a ") +
                                            noun_of(*asked.kind_before) +
                                            ", so that the result stays bit-identical.");
  if (slots.will_have_kind(DeviceKind::kGpu))
    return assigned(DeviceKind::kGpu, "The job accepts any device, and a GPU is available.");
  std::string why = gpu_note.empty() ? "No GPU can be used now." : gpu_note;
  return Choice{DeviceKind::kCpu, "CPU_FALLBACK", std::string("Runs on the CPU. ").append(why)};
}

WaitReason wait_for_device(const DeviceRequest& asked, DeviceKind kind, const Slots& slots,
                           const std::string& gpu_note) {
  if (slots.has_kind(kind, asked.gpus)) {
    if (asked.gpus > 1)
      return {"WAITING_FOR_DEVICE",
              "Waits until " + wanted(kind, asked.gpus) +
                  " are free at the same time; freed ones are held back from jobs of lower "
                  "priority and later jobs."};
    return {"WAITING_FOR_DEVICE",
            std::string("Waits for a free slot: every ") + noun_of(kind) +
                " slot is used by or reserved for jobs of higher priority or earlier jobs."};
  }
  std::string message = "Waits for " + wanted(kind, asked.gpus) + ": ";
  if (slots.will_have_kind(kind, asked.gpus) && !slots.checks_any())
    return {"WAITING_FOR_DEVICE",
            message + (gpu_note.empty() ? "another process uses one exclusively." : gpu_note)};
  if (slots.will_have_kind(kind, asked.gpus))
    return {"WAITING_FOR_DEVICE", message + (asked.gpus > 1 ? "some are" : "it is") +
                                      " being checked before a job starts on " +
                                      (asked.gpus > 1 ? "them" : "it") +
                                      ", which takes some seconds."};
  if (kind == DeviceKind::kGpu && !gpu_note.empty())
    message += gpu_note;
  else if (slots.has_kind(kind))
    message += "fewer are usable now.";
  else
    message += slots.lists_kind(kind) ? "none is usable now." : "this server has none.";
  return {"NO_DEVICE", std::move(message)};
}

}  // namespace trainyard::server
