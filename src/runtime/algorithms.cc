#include "src/runtime/algorithms.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "src/base/handle.h"
#include "src/base/json_fields.h"
#include "src/base/mutex.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

constexpr const char* kReason = "ALGORITHMS_INVALID";
constexpr int64_t kFormat =
    1;  // increased when the meaning of a choice's text or of the file's fields changes
constexpr size_t kChoicesMax = 20'000;  // per device class
constexpr size_t kClassesMax = 64;      // per record
constexpr int64_t kFileBytesMax = int64_t{64} << 20;
// A process holds the lock while it times one problem; one that holds it for longer hangs.
constexpr std::chrono::seconds kLockWaitMax(300);
constexpr std::chrono::milliseconds kLockPause(1);
// Share of a job's expected time in the timed problems that timing may take. The libraries' first
// proposals left 2 to 7 % to gain on an H100.
constexpr double kGainShare = 0.05;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

bool is_plain(std::string_view text) {
  return !text.empty() && text.size() <= kAlgorithmTextMax &&
         std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

Error invalid(const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, kReason, what);
}

/// Calls add(name, value) for each field of an object whose names are a backend's keys or choices.
Status for_each(const Json& object, const std::string& what, size_t count_max,
                const std::function<Status(const std::string&, const Json&)>& add) {
  if (!object.is_object() || object.size() > count_max) {
    return invalid(what + ": expected an object of at most " + std::to_string(count_max) +
                   " fields");
  }
  for (const auto& [name, value] : object.items()) {
    if (!is_plain(name)) {
      return invalid(what + ": a name is not of 1 to " + std::to_string(kAlgorithmTextMax) +
                     " printable characters");
    }
    if (Status s = add(name, value); !s.ok()) return s;
  }
  return {};
}

Status check_choice(const std::string& choice, const std::string& what) {
  if (is_plain(choice)) return {};
  return invalid(what + ": a choice is not of 1 to " + std::to_string(kAlgorithmTextMax) +
                 " printable characters");
}

Json table_json(const std::string& device_class, const std::map<std::string, TimedChoice>& table) {
  Json choices = Json::object();
  for (const auto& [key, timed] : table) {
    choices[key] = {{"choice", timed.choice},
                    {"candidates", timed.candidates},
                    {"first_us", timed.first_us},
                    {"taken_us", timed.taken_us}};
    if (timed.left_by_steps > 0) choices[key]["left_by_steps"] = timed.left_by_steps;
  }
  return {{"format", kFormat}, {"device_class", device_class}, {"choices", std::move(choices)}};
}

Result<std::map<std::string, TimedChoice>> parse_table(const std::string& text,
                                                       const std::string& device_class) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "the file", kReason));
  JsonFields fields(json, "the file", kReason);
  (void)fields.integer("format", kFormat, kFormat);
  if (const std::string of = fields.text("device_class"); of != device_class) {
    fields.refuse("device_class: " + quoted_value(of) + ", expected " + quoted_value(device_class));
  }
  const Json& choices = fields.child("choices");
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  std::map<std::string, TimedChoice> table;
  Status read = for_each(
      choices, "choices", kChoicesMax, [&](const std::string& key, const Json& value) -> Status {
        JsonFields entry(value, "choices[" + key + "]", kReason);
        TimedChoice timed;
        timed.choice = entry.text("choice");
        timed.candidates = entry.integer("candidates", 1, 1'000);
        timed.first_us = entry.number("first_us");
        timed.taken_us = entry.number("taken_us");
        if (value.contains("left_by_steps")) {
          timed.left_by_steps = entry.integer("left_by_steps", 1, INT64_MAX);
        }
        if (Status s = entry.finish(); !s.ok()) return s;
        if (Status s = check_choice(timed.choice, "choices[" + key + "]"); !s.ok()) return s;
        table.emplace(key, std::move(timed));
        return {};
      });
  if (!read.ok()) return std::move(read).error();
  return table;
}

/// Holds flock() on a file for its lifetime; the kernel releases the lock when the process ends.
/// The lock file is separate, since the file that it protects is replaced by renaming.
class FileLock {
 public:
  static Result<FileLock> take(const fs::path& path) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
    const auto refuse = [&](const std::string& why) {
      return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                        "cannot lock " + path.string() + ": " + why);
    };
    if (!fd) return refuse(std::strerror(errno));
    const SteadyClock::time_point begin = SteadyClock::now();
    while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return refuse(std::strerror(errno));
      if (SteadyClock::now() - begin > kLockWaitMax) {
        return refuse("another process has held it for " + std::to_string(kLockWaitMax.count()) +
                      " s");
      }
      std::this_thread::sleep_for(kLockPause);
    }
    return FileLock(std::move(fd));
  }

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace

Json to_json(const AlgorithmRecord& record) {
  Json json = Json::object();
  for (const auto& [device_class, choices] : record) json[device_class] = choices;
  return json;
}

Result<AlgorithmRecord> parse_algorithm_record(const Json& json) {
  AlgorithmRecord record;
  Status read = for_each(
      json, "algorithms", kClassesMax, [&](const std::string& device_class, const Json& choices) {
        AlgorithmChoices& of = record[device_class];
        const std::string what = "algorithms[" + device_class + "]";
        return for_each(choices, what, kChoicesMax,
                        [&](const std::string& key, const Json& choice) -> Status {
                          if (!choice.is_string()) return invalid(what + ": expected texts");
                          of[key] = choice.get<std::string>();
                          return check_choice(of[key], what);
                        });
      });
  if (!read.ok()) return std::move(read).error();
  return record;
}

Algorithms::Algorithms(Options options, Files& files)
    : options_(std::move(options)),
      files_(files),
      times_(options_.times && !options_.folder.empty()) {}

bool Algorithms::choose(const std::string& device_class, const std::string& key,
                        const AlgorithmProblem& problem) {
  TRAINYARD_CHECK(is_plain(device_class) && is_plain(key), "the words of " + key);
  const MutexLock lock(mu_);
  if (const auto it = used_[device_class].find(key);
      it != used_[device_class].end() && problem.take(it->second)) {
    return true;
  }
  std::string refused;
  const auto take = [&](const std::string& choice) TRAINYARD_REQUIRES(mu_) {
    if (choice == refused) return false;
    if (problem.take(choice)) {
      used_[device_class][key] = choice;
      return true;
    }
    refused = choice;
    if (summary_.refused++ == 0) summary_.refused_key = key;
    return false;
  };
  if (const auto of = preferred_.find(device_class); of != preferred_.end()) {
    if (const auto it = of->second.find(key); it != of->second.end() && take(it->second)) {
      return true;
    }
  }
  {
    const HostTable& table = host_table(device_class);
    if (const auto it = table.find(key);
        it != table.end() && !is_left_to(it->second) && take(it->second.choice)) {
      return true;
    }
  }
  if (times_) {
    const std::optional<std::string> chosen = time_and_record(device_class, key, problem, refused);
    if (chosen.has_value() && problem.take(*chosen)) {
      used_[device_class][key] = *chosen;
      return true;
    }
  }
  const std::optional<std::string> first = problem.take_first();
  if (first.has_value()) used_[device_class][key] = *first;
  return first.has_value();
}

/// Returns a choice that is now recorded for this host: one that another process has recorded
/// meanwhile, or a new one. Returns nothing if no choice can be made and recorded.
std::optional<std::string> Algorithms::time_and_record(const std::string& device_class,
                                                       const std::string& key,
                                                       const AlgorithmProblem& problem,
                                                       const std::string& refused) {
  if (const Status s = files_.create_directories(options_.folder); !s.ok()) {
    stop_timing(s.error().message);
    return std::nullopt;
  }
  const fs::path path = file_of(device_class);
  const Result<FileLock> lock = FileLock::take(path.string() + ".lock");
  if (!lock.ok()) {
    stop_timing(lock.error().message);
    return std::nullopt;
  }
  HostTable& table = host_[device_class];
  table = read_table(device_class, /*is_locked=*/true);
  const auto recorded = table.find(key);
  const bool is_recorded = recorded != table.end() && recorded->second.choice != refused;
  if (is_recorded && !is_left_to(recorded->second)) return recorded->second.choice;
  if (table.size() >= kChoicesMax) {
    stop_timing(path.string() + " has " + std::to_string(kChoicesMax) + " choices already");
    return std::nullopt;
  }
  const SteadyClock::time_point begin = SteadyClock::now();
  std::optional<TimedChoice> timed;
  if (gains_more_than_it_takes()) {
    timed = problem.time();
  } else if (is_recorded) {
    timed = recorded->second;
    timed->left_by_steps = *steps_;
  } else if (const std::optional<std::string> first = problem.take_first(); first.has_value()) {
    timed = {*first, 1, 0, 0, *steps_};
  }
  if (!timed.has_value()) return std::nullopt;
  const auto before = table.insert_or_assign(key, *timed);
  if (const Status s = replace_file(files_, path, table_json(device_class, table).dump(1) + "\n");
      !s.ok()) {
    table.erase(before.first);
    stop_timing(s.error().message);
    return std::nullopt;
  }
  const double seconds = seconds_since(begin);
  summary_.seconds += seconds;
  spent_s_ += seconds;
  if (timed->left_by_steps > 0) {
    ++summary_.left;
  } else if (timed->taken_us > 0) {
    ++summary_.timed;
    known_step_s_ += timed->first_us / 1e6;
    if (timed->taken_us < timed->first_us) ++summary_.changed;
    summary_.first_us += timed->first_us;
    summary_.taken_us += timed->taken_us;
  } else if (timed->candidates > 1) {
    ++summary_.without_memory;
  }
  report_progress();
  return timed->choice;
}

/// Returns whether the recorded choice was not timed because the job at that time was too short,
/// and this job is longer.
bool Algorithms::is_left_to(const TimedChoice& recorded) const {
  return times_ && recorded.left_by_steps > 0 &&
         (!steps_.has_value() || *steps_ > recorded.left_by_steps);
}

bool Algorithms::gains_more_than_it_takes() const {
  return !steps_.has_value() ||
         spent_s_ < options_.free_s + kGainShare * static_cast<double>(*steps_) * known_step_s_;
}

void Algorithms::report_progress() {
  if (report_ == nullptr || spent_s_ - reported_at_s_ < options_.progress_s) return;
  reported_at_s_ = spent_s_;
  char text[120];
  std::snprintf(text, sizeof text,
                "timing algorithms: %lld problems so far, %.0f s; later jobs reuse the choices",
                static_cast<long long>(summary_.timed), spent_s_);
  report_(text);
}

void Algorithms::stop_timing(const std::string& why) {
  times_ = false;
  messages_.push_back("algorithms are not timed, because their choices cannot be recorded (" + why +
                      "); where none is recorded, the libraries' first proposal is used");
}

fs::path Algorithms::file_of(const std::string& device_class) const {
  std::string name = device_class;
  for (char& c : name) {
    const bool is_kept = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                         (c >= 'a' && c <= 'z') || c == '.' || c == '_';
    if (!is_kept) c = '-';
  }
  return options_.folder / (name.substr(0, 200) + ".json");
}

Algorithms::HostTable& Algorithms::host_table(const std::string& device_class) {
  const auto [it, is_new] = host_.try_emplace(device_class);
  if (is_new && !options_.folder.empty()) it->second = read_table(device_class, false);
  return it->second;
}

/// Reads the host's file. An unreadable file is renamed by the process that holds the lock, so that
/// a new one can be started.
Algorithms::HostTable Algorithms::read_table(const std::string& device_class, bool is_locked) {
  const fs::path path = file_of(device_class);
  const Result<std::string> text = read_file(path, kFileBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) return {};
  Result<HostTable> table = text.ok() ? parse_table(*text, device_class) : text.error();
  if (table.ok()) return std::move(table).value();
  if (!is_locked) return {};
  const fs::path aside = path.string() + ".damaged";
  const Status s = files_.rename_durable(path, aside);
  messages_.push_back(
      "the recorded choices of algorithms are not used (" + path.string() + ": " +
      table.error().message + "); " +
      (s.ok() ? "the file is " + aside.filename().string() + " now, and a new file begins"
              : s.error().message));
  return {};
}

void Algorithms::prefer(AlgorithmRecord record) {
  const MutexLock lock(mu_);
  preferred_ = std::move(record);
}

void Algorithms::expect_steps(int64_t steps) {
  const MutexLock lock(mu_);
  steps_ = std::max<int64_t>(steps, 1);
}

void Algorithms::report_to(std::function<void(const std::string&)> say) {
  const MutexLock lock(mu_);
  report_ = std::move(say);
}

AlgorithmRecord Algorithms::used() const {
  const MutexLock lock(mu_);
  AlgorithmRecord record;
  for (const auto& [device_class, choices] : used_) {
    if (!choices.empty()) record[device_class] = choices;
  }
  return record;
}

std::vector<std::string> Algorithms::take_messages() {
  const MutexLock lock(mu_);
  const Summary s = std::exchange(summary_, {});
  std::vector<std::string> messages = std::exchange(messages_, {});
  if (s.refused > 0) {
    messages.push_back(std::to_string(s.refused) +
                       " recorded choices of algorithms were rejected by the libraries and chosen "
                       "again; the first is for " +
                       s.refused_key);
  }
  if (s.timed > 0) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "timed the algorithms of %lld problems in %.1f s: %lld differ from the "
                  "libraries' first proposal; in total they take %.0f %% less time",
                  static_cast<long long>(s.timed), s.seconds, static_cast<long long>(s.changed),
                  100 * (1 - s.taken_us / s.first_us));
    messages.emplace_back(text);
  }
  if (s.left > 0) {
    messages.push_back("the algorithms of " + std::to_string(s.left) +
                       " problems are not timed, since that would take longer than this job would "
                       "gain; the libraries' first proposals are used until a longer job runs");
  }
  if (s.without_memory > 0) {
    messages.push_back("the device had too little memory to time the algorithms of " +
                       std::to_string(s.without_memory) +
                       " problems; the libraries' first proposals are recorded for them");
  }
  return messages;
}

Result<fs::path> local_algorithms_folder() {
  const auto from = [](const char* name) -> std::string {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
  };
  if (const std::string own = from("TRAINYARD_ALGORITHMS"); !own.empty()) {
    if (own == "off") return fs::path();
    if (own.front() == '/') return fs::path(own);
    return make_error(ErrorCode::kInvalidArgument, "ALGORITHMS_FOLDER_INVALID",
                      "TRAINYARD_ALGORITHMS: " + quoted_value(own) +
                          ", expected the absolute path of a folder, or off");
  }
  if (const std::string cache = from("XDG_CACHE_HOME"); cache.starts_with('/')) {
    return fs::path(cache) / "trainyard/algorithms";
  }
  if (const std::string home = from("HOME"); home.starts_with('/')) {
    return fs::path(home) / ".cache/trainyard/algorithms";
  }
  return fs::path();
}

}  // namespace trainyard
