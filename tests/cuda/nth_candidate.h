// tests/cuda/nth_candidate.h: tries all algorithms that timing may pick. A job on some GPU may use
// any of them, so all must be right, not only the library's first proposal.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/runtime/algorithms.h"

namespace trainyard::testing {

/// Chooses the n-th candidate of every problem, or the last one if there are fewer.
class NthCandidate final : public Algorithms {
 public:
  NthCandidate() : Algorithms(Options{{}, /*times=*/false}) {}

  /// Sets the candidate's number, counted from 0, for the problems that follow.
  void take(size_t number) {
    number_ = number;
    most_ = 0;
    taken_.clear();
  }
  /// The largest number of candidates of a problem since take(), and the choices made since then.
  size_t most() const { return most_; }
  const std::map<std::string, std::string>& taken() const { return taken_; }

  bool choose(const std::string& device_class, const std::string& key,
              const AlgorithmProblem& problem) override {
    if (!choices_.contains(key)) {
      const auto timed = problem.time();
      choices_[key] = timed.has_value() ? timed->choices : std::vector<std::string>();
    }
    const std::vector<std::string>& choices = choices_[key];
    if (choices.empty()) return Algorithms::choose(device_class, key, problem);
    most_ = std::max(most_, choices.size());
    const std::string& choice = choices[std::min(number_, choices.size() - 1)];
    taken_[key] = choice;
    return problem.take(choice);
  }

 private:
  size_t number_ = 0, most_ = 0;
  std::map<std::string, std::vector<std::string>> choices_;  // by problem
  std::map<std::string, std::string> taken_;                 // by problem, since take()
};

/// Uses the library's first proposal for every problem, and remembers the choices.
class FirstProposal final : public Algorithms {
 public:
  FirstProposal() : Algorithms(Options{{}, /*times=*/false}) {}

  void forget() { taken_.clear(); }
  /// The choices made since forget().
  const std::map<std::string, std::string>& taken() const { return taken_; }

  bool choose(const std::string& /*device_class*/, const std::string& key,
              const AlgorithmProblem& problem) override {
    const std::optional<std::string> first = problem.take_first();
    if (first.has_value()) taken_[key] = *first;
    return first.has_value();
  }

 private:
  std::map<std::string, std::string> taken_;
};

/// Returns the choices as lines, for the report of a failing case.
inline std::string lines_of(const std::map<std::string, std::string>& taken) {
  std::string lines;
  for (const auto& [key, choice] : taken) lines += "\n  " + key + ": " + choice;
  return lines;
}

/// Whether this process tests the case: parallel processes share a test's cases by
/// TRAINYARD_CANDIDATE_PART, where "2/3" is the second of three. Unset: all cases.
inline bool is_in_part(size_t number) {
  const char* const text = std::getenv("TRAINYARD_CANDIDATE_PART");
  size_t part = 1, parts = 1;
  if (text != nullptr && std::sscanf(text, "%zu/%zu", &part, &parts) != 2) {
    throw std::invalid_argument(std::string("TRAINYARD_CANDIDATE_PART: '") + text +
                                "', expected such as 2/3");
  }
  return number % std::max<size_t>(parts, 1) == part - 1;
}

/// Limits the time of a check, since the number of candidates and the time to make a plan depend on
/// the GPU. TRAINYARD_CANDIDATE_SECONDS sets the limit; unset: none. The check reports the omitted
/// cases.
class CandidateTime {
 public:
  bool is_left() const { return std::chrono::steady_clock::now() < end_; }
  /// Notes that a case, or its remaining candidates, were omitted for lack of time.
  void leave_out(const std::string& name) {
    if (left_out_++ == 0) first_left_out_ = name;
  }
  /// Prints what was omitted, if anything; scripts/gpu_check shows the line.
  void report(int64_t compared) const {
    if (left_out_ == 0) return;
    std::printf("left out: %lld cases, from %s on; the time was over behind %lld candidates\n",
                static_cast<long long>(left_out_), first_left_out_.c_str(),
                static_cast<long long>(compared));
  }

 private:
  static std::chrono::steady_clock::time_point find_end() {
    const char* const seconds = std::getenv("TRAINYARD_CANDIDATE_SECONDS");
    if (seconds == nullptr) return std::chrono::steady_clock::time_point::max();
    return std::chrono::steady_clock::now() +
           std::chrono::milliseconds(std::llround(1e3 * std::atof(seconds)));
  }

  std::chrono::steady_clock::time_point end_ = find_end();
  int64_t left_out_ = 0;
  std::string first_left_out_;
};

}  // namespace trainyard::testing
