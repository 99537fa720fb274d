// tests/bench/step_model.h: predicts the time of a training step on a GPU that is not there, from
// what the step submits (step_count.h), algorithms that were timed on one, and a table of facts
// about our kernels (step_facts.h). Work runs on one stream, so a step is the sum of its nodes.
//
//   algorithm   its timed microseconds, less those of the measuring; else see AlgorithmTimes
//   sweep       what it reads at the bandwidth that its loads in flight allow (Little's law) and
//               all its bytes at the memory's, one behind the other, since latency grows as the
//               memory fills; its elements at its instructions' rate, if that is longer
//   kernel      the submission of each, beside its bytes
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/bench/step_count.h"
#include "tests/bench/step_facts.h"

namespace trainyard::bench {

/// What an algorithm's key says.
struct KeyedProblem {
  bool is_convolution = false;
  int64_t pass = 0;      // of a convolution: forward, data, weights
  std::string shape;     // every word of sizes, order and transposition
  std::string operands;  // "bf16"
  std::string result;    // empty: the choice is among results of any format
  bool tf32 = false;
  int64_t workspace = 0;
  std::vector<int64_t> filter;  // of a convolution: [K, C/G, R, S]
  double flops = 0;
  double bytes = 0;  // operands and result, once each

  bool is_half() const { return operands != "F32"; }
};
/// A key of src/runtime/cuda/{product,convolution}.cc; words that it does not know do not matter.
/// Throws std::invalid_argument on another.
KeyedProblem parse_algorithm_key(const std::string& key);

struct Charge {
  double us = 0;
  Basis basis = Basis::kEstimate;
  std::string how;  // of one that was not timed; empty: it was
};

/// Times of one file of algorithms (src/runtime/algorithms.h).
class AlgorithmTimes {
 public:
  /// Throws std::runtime_error where the file cannot be read.
  explicit AlgorithmTimes(const std::filesystem::path& file);

  /// The timed algorithm, which a larger workspace holds as well; else, in this order, with `how`
  /// saying which:
  ///   our own             a small convolution's stated wait and rate
  ///   engine 70           its fitted rate by tiles of the filter
  ///   another engine      the mean rate of its timed problems, where the file names the engine
  ///   alike               the same problem with another epilogue, result or workspace
  ///   another precision   the same gradient of a filter in TF32, times what 16 bits gain in the
  ///                       other two passes
  ///   a rate              of step_facts.h
  Charge charge(const std::string& key) const;
  /// Of the ways in which one convolution was asked for, best first, that which the device takes:
  /// the first that the file has, else the last that the fakes offer.
  std::vector<std::string> taken(const std::vector<AskedAlgorithm>& asked) const;

 private:
  struct Entry {
    KeyedProblem problem;
    int engine = -1;  // of cuDNN
    double us = 0;    // 0: not timed
  };
  struct Rate {
    double flops = 0, us = 0;
  };
  /// What was recorded of this problem; nullptr: nothing, or no more than that a smaller workspace
  /// left it to the naive engine or untimed.
  const Entry* find(const std::string& key) const;
  const Entry* find_alike(const KeyedProblem& problem, int64_t pass, const std::string& operands,
                          bool tf32) const;
  double by_other_passes(const KeyedProblem& problem) const;  // us; 0: it cannot be told

  std::map<std::string, Entry> entries_;
  std::map<std::string, const Entry*> by_problem_;  // keys without their workspace
  std::map<std::string, std::vector<const Entry*>> by_shape_;
  std::map<std::string, Rate> by_engine_;
};

using TimeByBasis = std::array<double, kBases>;  // us

struct OpPrediction {
  int64_t nodes = 0, works = 0;
  double bytes = 0;  // that are moved
  TimeByBasis us{};
  double all_us() const;
};
struct StepPrediction {
  std::map<std::string, OpPrediction> by_op;  // "outside the recording" too
  TimeByBasis us{};
  std::map<std::string, std::string> not_timed;  // keys, and what they are charged by
  std::set<std::string> unknown_ops;             // that the table of sweeps does not name
  double ms() const;
};

StepPrediction predict(const StepCount& step, const AlgorithmTimes& times);
/// Of one of its nodes.
TimeByBasis node_us(const NodeCount& node, const AlgorithmTimes& times);
/// What a node reads and writes: each sweep of our kernels, and the operands of libraries once.
double moved_bytes(const NodeCount& node, const AlgorithmTimes& times);
/// Where the first run's algorithms are.
std::filesystem::path first_run_algorithms();

}  // namespace trainyard::bench
