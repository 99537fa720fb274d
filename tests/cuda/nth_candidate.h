// tests/cuda/nth_candidate.h: the algorithms that timing may pick, one after another. Each is taken
// by a job on some GPU, so each must be right, not only what a library proposes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
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

}  // namespace trainyard::testing
