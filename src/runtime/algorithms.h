// src/runtime/algorithms.h: which algorithm of a library each problem gets, chosen once and kept.
//
// A library offers several algorithms for one product or convolution. Which is fastest is found by
// timing them, and they differ in their last bits; so a choice is made once for a problem and a
// class of devices, recorded, and taken from then on (docs/decisions/0034). Where choices are:
//
//   of the job    in its checkpoint: they come first, so a resumed job goes on to the same bits
//   of the host   in a folder, a JSON file for each class of devices, shared by all processes
//
// An algorithm is timed only where its choice can be recorded. Elsewhere what the library proposes
// first is taken: that repeats, too.
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

/// Choices by problem, both in the words of the backend: printable ASCII, no longer than
/// kAlgorithmTextMax.
using AlgorithmChoices = std::map<std::string, std::string>;
constexpr size_t kAlgorithmTextMax = 1024;
/// By class of devices: those on which a problem's choice means the same and is equally good.
using AlgorithmRecord = std::map<std::string, AlgorithmChoices>;

/// A choice that is to be recorded, and what it gained.
struct TimedChoice {
  std::string choice;
  int64_t candidates = 1;
  // Of the library's first proposal and of the one that was taken; 0: they were not timed, for
  // there was one alone, no memory, or no time.
  double first_us = 0, taken_us = 0;
  // Above 0: it was not timed because a job of so many steps had no time for it. A longer job may.
  int64_t left_by_steps = 0;
  // All that might have been taken, in the order in which they were proposed. Not recorded.
  std::vector<std::string> choices = {};
};

/// What a backend does for one problem.
struct AlgorithmProblem {
  /// Makes a recorded choice ready. False if the library refuses it.
  std::function<bool(const std::string& choice)> take;
  /// Makes ready what the library proposes first, and tells it; nothing where it proposes none.
  std::function<std::optional<std::string>()> take_first;
  /// Times what the library proposes. Nothing where it has no candidate that can be told and taken.
  std::function<std::optional<TimedChoice>()> time;
};

/// As it is in a checkpoint, and back. Refusal: INVALID_ARGUMENT/ALGORITHMS_INVALID.
nlohmann::json to_json(const AlgorithmRecord& record);
Result<AlgorithmRecord> parse_algorithm_record(const nlohmann::json& json);

/// The choices of one job, whose ranks share it. Thread-safe: one problem is dealt with at a time,
/// so that no two ranks time the same one.
class Algorithms {
 public:
  struct Options {
    std::filesystem::path folder;  // of the host's files; empty: there are none
    bool times = true;             // what is not recorded yet; false: the folder is only read
    double free_s = 5;             // that timing may take of any job, because later ones gain too
    double progress_s = 10;        // from one sentence about it to the next
  };
  explicit Algorithms(Options options, Files& files = local_files());
  virtual ~Algorithms() = default;
  Algorithms(const Algorithms&) = delete;
  Algorithms& operator=(const Algorithms&) = delete;

  /// Makes an algorithm ready for the problem; false where the library has none. What the callbacks
  /// throw goes through. Virtual, because the CUDA module calls it across its border.
  virtual bool choose(const std::string& device_class, const std::string& key,
                      const AlgorithmProblem& problem);

  /// Choices of a checkpoint, before anything is chosen.
  void prefer(AlgorithmRecord record);
  /// How many steps the job has. Timing then ends where it would hold the job up for longer than it
  /// gains; what is left takes the library's first proposal, in this job and in every other that is
  /// no longer. Not called: everything is timed.
  void expect_steps(int64_t steps);
  /// Is told from time to time that timing goes on, by the thread that times; nullptr: nobody.
  void report_to(std::function<void(const std::string&)> say);
  /// All that was chosen.
  AlgorithmRecord used() const;
  /// Sentences for the job's log since the last call.
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
  mutable Mutex mu_;  // held while something is timed: see the class
  AlgorithmRecord used_ TRAINYARD_GUARDED_BY(mu_), preferred_ TRAINYARD_GUARDED_BY(mu_);
  std::map<std::string, HostTable> host_ TRAINYARD_GUARDED_BY(mu_);
  bool times_ TRAINYARD_GUARDED_BY(mu_);
  std::optional<int64_t> steps_ TRAINYARD_GUARDED_BY(mu_);
  double spent_s_ TRAINYARD_GUARDED_BY(mu_) = 0;       // on timing
  double known_step_s_ TRAINYARD_GUARDED_BY(mu_) = 0;  // of a step, in the problems that were timed
  std::function<void(const std::string&)> say_ TRAINYARD_GUARDED_BY(mu_);
  double said_s_ TRAINYARD_GUARDED_BY(mu_) = 0;
  std::vector<std::string> messages_ TRAINYARD_GUARDED_BY(mu_);
  struct Summary {
    int64_t timed = 0, changed = 0, without_memory = 0, left = 0, refused = 0;
    double first_us = 0, taken_us = 0, seconds = 0;
    std::string refused_key;
  } summary_ TRAINYARD_GUARDED_BY(mu_);
};

/// The folder of programs without a daemon: TRAINYARD_ALGORITHMS, an absolute path or "off"; else
/// $XDG_CACHE_HOME/trainyard/algorithms or ~/.cache/trainyard/algorithms. Empty where it is off or
/// there is no home. INVALID_ARGUMENT/ALGORITHMS_FOLDER_INVALID for another value.
Result<std::filesystem::path> local_algorithms_folder();

}  // namespace trainyard
