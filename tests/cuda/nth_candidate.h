// tests/cuda/nth_candidate.h: the algorithms that timing may pick, one after another. Each is taken
// by a job on some GPU, so each must be right, not only what a library proposes first.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/runtime/algorithms.h"

namespace trainyard::testing {

/// Takes, of every problem's candidates, the one of a number; the last where there are not so many.
class NthCandidate final : public Algorithms {
 public:
  NthCandidate() : Algorithms(Options{{}, /*times=*/false}) {}

  /// From now on.
  void take(size_t number) {
    number_ = number;
    most_ = 0;
    taken_.clear();
  }
  /// Of the problems since then: the most candidates that one of them had, and what was taken.
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
  std::map<std::string, std::string> taken_;                 // since take()
};

/// Whether the case of this number is looked at here: processes side by side share the cases of a
/// test by TRAINYARD_CANDIDATE_PART, "2/3" the second of three. Unset: all of them.
inline bool is_in_part(size_t number) {
  const char* const text = std::getenv("TRAINYARD_CANDIDATE_PART");
  size_t part = 1, parts = 1;
  if (text != nullptr && std::sscanf(text, "%zu/%zu", &part, &parts) != 2) {
    throw std::invalid_argument(std::string("TRAINYARD_CANDIDATE_PART: '") + text +
                                "', expected such as 2/3");
  }
  return number % std::max<size_t>(parts, 1) == part - 1;
}

/// How many candidates a library has, and what making one's plan takes, depends on the GPU. A check
/// that may not take long says what it has left out: TRAINYARD_CANDIDATE_SECONDS in the
/// environment; unset: it looks at all.
class CandidateTime {
 public:
  bool is_left() const { return std::chrono::steady_clock::now() < end_; }
  /// For want of time: a case, or what is left of one.
  void leave_out(const std::string& name) {
    if (left_out_++ == 0) first_left_out_ = name;
  }
  /// Prints what was left out, if anything; scripts/gpu_check shows the line.
  void report(int64_t looked_at) const {
    if (left_out_ == 0) return;
    std::printf("left out: %lld cases, from %s on; the time was over behind %lld candidates\n",
                static_cast<long long>(left_out_), first_left_out_.c_str(),
                static_cast<long long>(looked_at));
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
