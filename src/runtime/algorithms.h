// src/runtime/algorithms.h: chooses a library's algorithm for each problem once, and records it.
//
// A library offers several algorithms for one product or convolution. The fastest is found by
// timing them, and their results differ in the last bits. So an algorithm is chosen once per
// problem and device class, recorded, and used from then on
// (docs/decisions/choosing-gpu-algorithms.md). There are two records:
//
//   job    in its checkpoint: preferred, so that a resumed job continues with the same bits
//   host   in a folder with one JSON file per device class, shared by all processes
//
// Algorithms are timed only if the choice can be recorded. Otherwise the library's first proposal
// is used, which is also reproducible.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace trainyard {

/// Choices by problem. Both texts are defined by the backend: printable ASCII, at most
/// kAlgorithmTextMax characters.
using AlgorithmChoices = std::map<std::string, std::string>;
constexpr size_t kAlgorithmTextMax = 1024;
/// Keyed by device class: the devices on which a choice means the same algorithm and is equally
/// good.
using AlgorithmRecord = std::map<std::string, AlgorithmChoices>;

/// A choice to be recorded, and the time that it saves.
struct TimedChoice {
  std::string choice;
  int64_t candidates = 1;
  // Times in microseconds of the library's first proposal and of the chosen algorithm. 0: not
  // timed, since there was only one candidate, too little memory, or not enough time.
  double first_us = 0, taken_us = 0;
  // > 0: not timed, since a job of this many steps was too short for it. A longer job may time it.
  int64_t left_by_steps = 0;
  // All candidates, in the order in which the library proposed them. Not recorded.
  std::vector<std::string> choices = {};
};

/// The operations of a backend on one problem.
struct AlgorithmProblem {
  /// Selects a recorded choice. False if the library refuses it.
  std::function<bool(const std::string& choice)> take;
  /// Selects the library's first proposal and returns it; nothing if there is no proposal.
  std::function<std::optional<std::string>()> take_first;
  /// Times the library's proposals. Nothing if no candidate can be both described and selected.
  std::function<std::optional<TimedChoice>()> time;
};

/// Converts a record to and from its form in a checkpoint. Error:
/// INVALID_ARGUMENT/ALGORITHMS_INVALID.
nlohmann::json to_json(const AlgorithmRecord& record);
Result<AlgorithmRecord> parse_algorithm_record(const nlohmann::json& json);

/// The choices of one job, shared by its ranks. Thread-safe: problems are handled one at a time, so
/// that no two ranks time the same problem.
class Algorithms {
 public:
  struct Options {
    std::filesystem::path folder;  // folder of the host's files; empty: no such files
    bool times = true;  // whether unrecorded problems are timed; false: the folder is only read
    double free_s = 5;  // seconds of timing granted to any job, since later jobs gain from it too
    double progress_s = 10;  // seconds between two progress messages
  };
  explicit Algorithms(Options options, Files& files = local_files());
  virtual ~Algorithms() = default;
  Algorithms(const Algorithms&) = delete;
  Algorithms& operator=(const Algorithms&) = delete;

  /// Selects an algorithm for the problem; false if the library has none. Rethrows exceptions of
  /// the callbacks. Virtual, because the CUDA module calls it across the library boundary.
  virtual bool choose(const std::string& device_class, const std::string& key,
                      const AlgorithmProblem& problem);

  /// Sets the choices of a checkpoint. Must be called before anything is chosen.
  void prefer(AlgorithmRecord record);
  /// Sets the job's number of steps. Timing then ends when it would cost more time than the job
  /// gains. The remaining problems use the library's first proposal, in this job and in all jobs
  /// with at most as many steps. If this is not called, everything is timed.
  void expect_steps(int64_t steps);
  /// Sets the receiver of progress messages while algorithms are timed; the timing thread calls it.
  /// nullptr: none.
  void report_to(std::function<void(const std::string&)> say);
  /// Returns all choices made so far.
  AlgorithmRecord used() const;
  /// Returns the messages for the job's log since the last call.
  std::vector<std::string> take_messages();

 private:
  using HostTable = std::map<std::string, TimedChoice>;  // by problem

  std::filesystem::path file_of(const std::string& device_class) const;
  HostTable& host_table(const std::string& device_class) TRAINYARD_REQUIRES(mu_);
  HostTable read_table(const std::string& device_class, bool is_locked) TRAINYARD_REQUIRES(mu_);
  bool is_left_to(const TimedChoice& recorded) const TRAINYARD_REQUIRES(mu_);
  bool gains_more_than_it_takes() const TRAINYARD_REQUIRES(mu_);
  void report_progress() TRAINYARD_REQUIRES(mu_);
  std::optional<std::string> time_and_record(const std::string& device_class,
                                             const std::string& key,
                                             const AlgorithmProblem& problem,
                                             const std::string& refused) TRAINYARD_REQUIRES(mu_);
  void stop_timing(const std::string& why) TRAINYARD_REQUIRES(mu_);

  const Options options_;
  Files& files_;
  mutable Mutex mu_;  // held while a problem is timed, see the class comment
  AlgorithmRecord used_ TRAINYARD_GUARDED_BY(mu_), preferred_ TRAINYARD_GUARDED_BY(mu_);
  std::map<std::string, HostTable> host_ TRAINYARD_GUARDED_BY(mu_);
  bool times_ TRAINYARD_GUARDED_BY(mu_);
  std::optional<int64_t> steps_ TRAINYARD_GUARDED_BY(mu_);
  double spent_s_ TRAINYARD_GUARDED_BY(mu_) = 0;  // seconds spent on timing
  double known_step_s_ TRAINYARD_GUARDED_BY(mu_) =
      0;  // seconds per step spent in the timed problems
  std::function<void(const std::string&)> report_ TRAINYARD_GUARDED_BY(mu_);
  double reported_at_s_ TRAINYARD_GUARDED_BY(mu_) = 0;
  std::vector<std::string> messages_ TRAINYARD_GUARDED_BY(mu_);
  struct Summary {
    int64_t timed = 0, changed = 0, without_memory = 0, left = 0, refused = 0;
    double first_us = 0, taken_us = 0, seconds = 0;
    std::string refused_key;
  } summary_ TRAINYARD_GUARDED_BY(mu_);
};

/// Returns the folder for programs without a daemon. TRAINYARD_ALGORITHMS sets it to an absolute
/// path or "off"; the default is $XDG_CACHE_HOME/trainyard/algorithms or
/// ~/.cache/trainyard/algorithms. Empty if it is off or there is no home directory.
/// INVALID_ARGUMENT/ALGORITHMS_FOLDER_INVALID for other values.
Result<std::filesystem::path> local_algorithms_folder();

}  // namespace trainyard
