#include "server/scheduler/shares.h"

#include <algorithm>

#include "server/store/owner_uses.h"
#include "src/base/check.h"

namespace trainyard::server {
namespace {
constexpr double kSecond = 1e6;
}

double Shares::used_by(const Owner& owner, int64_t now_us) const {
  return use_after(owner.used, owner.devices, now_us - owner.as_of_us, half_life_us_);
}

void Shares::add(const std::string& owner, double used, int64_t as_of_us, int64_t now_us) {
  if (!enabled()) return;
  Owner& of = owners_[owner];
  of.used = used_by(of, now_us) + used_by({used, as_of_us, 0}, now_us);
  of.as_of_us = now_us;
}

void Shares::add(const std::string& owner, int64_t devices, int64_t start_us, int64_t end_us,
                 int64_t now_us) {
  if (!enabled() || end_us <= start_us) return;
  Owner past{0, start_us, devices};
  past.used = used_by(past, end_us);
  past.as_of_us = end_us;
  past.devices = 0;
  Owner& of = owners_[owner];
  of.used = used_by(of, now_us) + used_by(past, now_us);
  of.as_of_us = now_us;
}

void Shares::change(const std::string& owner, int64_t devices, int64_t now_us) {
  if (!enabled()) return;
  Owner& of = owners_[owner];
  of.used = used_by(of, now_us);
  of.as_of_us = std::max(of.as_of_us, now_us);  // the clock may jump back
  of.devices += devices;
  TRAINYARD_CHECK(of.devices >= 0, owner + " gives back more devices than it has");
}

double Shares::usage(const std::string& owner, int64_t now_us) const {
  const auto found = owners_.find(owner);
  if (!enabled() || found == owners_.end()) return 0;
  const Owner& of = found->second;
  return used_by(of, now_us) +
         static_cast<double>(of.devices) * static_cast<double>(kLeastUs) / kSecond;
}

}  // namespace trainyard::server
