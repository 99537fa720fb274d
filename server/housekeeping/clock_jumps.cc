#include "server/housekeeping/clock_jumps.h"

#include <spdlog/spdlog.h>
#include <time.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "server/config/log.h"
#include "src/base/check.h"

namespace trainyard::server {
namespace {

constexpr int64_t kFileBytesMax = 64 << 10;
constexpr int64_t kDriftOf = 1000;  // a clock may be fast by one part in so many

}  // namespace

ClockJumps::ClockJumps(Files& files, std::filesystem::path file, const Clock& clock,
                       std::string boot_id, std::function<int64_t()> boot_us)
    : files_(files),
      file_(std::move(file)),
      clock_(clock),
      boot_id_(std::move(boot_id)),
      boot_us_(std::move(boot_us)) {
  read();
}

void ClockJumps::observe() {
  Record record;
  {
    const MutexLock lock(mu_);
    const int64_t wall_us = clock_.wall_us();
    const int64_t boot_us = boot_us_();
    if (!last_.boot_id.empty() && last_.boot_id == boot_id_ && boot_us >= last_.boot_us) {
      const int64_t passed_us = boot_us - last_.boot_us;
      const int64_t expected_us = last_.wall_us + passed_us;
      const int64_t jump_us = wall_us - expected_us;
      if (std::abs(jump_us) > std::max(kToleranceUs, passed_us / kDriftOf)) {
        spdlog::warn("event=clock_jumped seconds={} {}", jump_us / 1'000'000,
                     kv("message", "the ages of jobs are counted without it"));
        add(expected_us, jump_us);
      }
    }
    last_.boot_id = boot_id_;
    last_.boot_us = boot_us;
    last_.wall_us = wall_us;
    record = last_;
  }
  write(record);
}

int64_t ClockJumps::ended_before(int64_t now_us, int64_t age_us) const {
  const MutexLock lock(mu_);
  int64_t time_us = now_us - age_us;
  for (auto jump = last_.jumps.rbegin(); jump != last_.jumps.rend(); ++jump) {
    if (time_us >= jump->before_us + jump->amount_us) break;  // all of the age came after it
    time_us -= jump->amount_us;
  }
  return time_us;
}

void ClockJumps::add(int64_t before_us, int64_t amount_us) {
  std::vector<Jump>& jumps = last_.jumps;
  if (amount_us > 0) {
    jumps.push_back({before_us, amount_us});
    // Two jumps in one protect the jobs that ended between them for longer than they need.
    if (jumps.size() > kJumpsMax) {
      jumps[1].amount_us += jumps[0].amount_us;
      jumps.erase(jumps.begin());
    }
    return;
  }
  for (int64_t back_us = -amount_us; back_us > 0 && !jumps.empty();) {
    const int64_t taken_us = std::min(back_us, jumps.back().amount_us);
    back_us -= taken_us;
    jumps.back().amount_us -= taken_us;
    if (jumps.back().amount_us == 0) jumps.pop_back();
  }
}

void ClockJumps::read() {
  const Result<std::string> text = read_file(file_, kFileBytesMax);
  if (!text.ok()) return;
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    Record record;
    record.boot_id = json.at("boot_id");
    record.boot_us = json.at("boot_us");
    record.wall_us = json.at("wall_us");
    for (const nlohmann::json& jump : json.at("jumps")) {
      record.jumps.push_back({jump.at("before_us"), jump.at("amount_us")});
    }
    const MutexLock lock(mu_);
    last_ = std::move(record);
  } catch (const nlohmann::json::exception& e) {
    spdlog::warn("event=clock_record_not_read {}", kv("what", e.what()));
  }
}

void ClockJumps::write(const Record& record) {
  nlohmann::json json = {{"boot_id", record.boot_id},
                         {"boot_us", record.boot_us},
                         {"wall_us", record.wall_us},
                         {"jumps", nlohmann::json::array()}};
  for (const Jump& jump : record.jumps) {
    json["jumps"].push_back({{"before_us", jump.before_us}, {"amount_us", jump.amount_us}});
  }
  const std::string text = json.dump();
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  std::filesystem::path temporary = file_;
  temporary += ".tmp";
  Status s = files_.write_file(temporary, std::span(&part, 1));
  if (s.ok()) s = files_.rename_durable(temporary, file_);
  if (!s.ok()) spdlog::warn("event=clock_record_not_written {}", kv("message", s.error().message));
}

int64_t time_since_boot_us() {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return int64_t{t.tv_sec} * 1'000'000 + t.tv_nsec / 1000;
}

std::string current_boot_id() {
  const Result<std::string> text = read_file("/proc/sys/kernel/random/boot_id", 64);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

}  // namespace trainyard::server
