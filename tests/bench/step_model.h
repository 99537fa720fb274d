// tests/bench/step_model.h: predicts the time of a training step on a GPU without having one, from
// the works that the step submits (step_count.h), algorithms that were timed on a GPU, and a table
// of facts about our kernels (step_facts.h). The time of a step is the sum of its nodes' times, or,
// if it has two lanes (src/plan/lanes.h), the sum along its longest path:
//
//   algorithm   its timed microseconds, minus the overhead of measuring; if not timed, see
//               AlgorithmTimes
//   sweep       the bytes read at the bandwidth that the loads in flight allow (Little's law) plus
//               all bytes at the memory's bandwidth, added because latency grows with the load of
//               the memory; or the elements at the rate of its instructions, if that is longer
//   kernel      the submission of each, in addition to its bytes
//   lanes       a node of the side lane takes as long as it would alone, concurrently with the main
//               lane. The lanes share the memory's bandwidth: the time of their bytes is added,
//               for the lane that has fewer, as if both moved all theirs at the same time. This
//               was never measured
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

/// The content of an algorithm's key.
struct KeyedProblem {
  bool is_convolution = false;
  int64_t pass = 0;      // a convolution's pass: forward, data or weights
  std::string shape;     // all words of sizes, order and transposition
  std::string operands;  // such as "bf16"
  std::string result;    // empty: the choice includes results of any format
  bool tf32 = false;
  int64_t workspace = 0;
  std::vector<int64_t> filter;  // a convolution's filter: [K, C/G, R, S]
  double flops = 0;
  double bytes = 0;  // operands and result, once each
  // Whether a side of a product along which elements are contiguous is no multiple of 8: it then
  // has no kernel that reads 16 bytes at a time.
  bool is_odd = false;

  bool is_half() const { return operands != "F32"; }
};
/// Parses a key of src/runtime/cuda/{cublaslt_matmul,conv_algorithms}.cc; unknown words are
/// ignored. Throws std::invalid_argument on another key.
KeyedProblem parse_algorithm_key(const std::string& key);

struct Charge {
  double us = 0;
  Basis basis = Basis::kEstimate;
  std::string how;  // the basis of an estimate; empty if the algorithm was timed
};

/// The line of step_facts.cc with the rate of a problem that was not timed.
Fact Facts::*rate_of(const KeyedProblem& problem);
/// The microseconds of the problem at that rate, or of its bytes, if that is longer.
double us_by_rate(const KeyedProblem& problem, const Facts& facts);

/// The times in a file of algorithms (src/runtime/algorithms.h).
class AlgorithmTimes {
 public:
  /// Throws std::runtime_error if the file cannot be read.
  explicit AlgorithmTimes(const std::filesystem::path& file);

  /// Returns the timed algorithm, which also fits into a larger workspace; else the first
  /// applicable of the following, which `how` names:
  ///   our own             a small convolution's stated wait and rate
  ///   engine 70           its fitted rate by tiles of the filter
  ///   another engine      the mean rate of its timed problems, if the file names the engine
  ///   alike               the same problem with another epilogue, result or workspace
  ///   another precision   the same gradient of a filter in TF32, times the speed-up of 16 bits in
  ///                       the other two passes
  ///   a rate              of step_facts.h
  Charge charge(const std::string& key) const;
  /// One convolution requests algorithms in several ways, the best first. Returns the requests of
  /// the way that the device chooses: the first that the file has, else the last that the fakes
  /// offer.
  std::vector<std::string> taken(const std::vector<AskedAlgorithm>& asked) const;

  struct Entry {
    KeyedProblem problem;
    int engine = -1;  // cuDNN's engine; -1: none
    double us = 0;    // 0: not timed
  };
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  struct Rate {
    double flops = 0, us = 0;
  };
  /// Returns the entry of this key. Without one, returns an entry of the same problem with a
  /// smaller workspace if it has a time and an engine other than the naive one; else nullptr.
  const Entry* find(const std::string& key) const;
  const Entry* find_alike(const KeyedProblem& problem, int64_t pass, const std::string& operands,
                          bool tf32) const;
  double by_other_passes(const KeyedProblem& problem) const;  // microseconds; 0: unknown

  std::map<std::string, Entry> entries_;
  std::map<std::string, const Entry*> by_problem_;  // keys without their workspace
  std::map<std::string, std::vector<const Entry*>> by_shape_;
  std::map<std::string, Rate> by_engine_;
};

using TimeByBasis = std::array<double, kBases>;  // microseconds

struct OpPrediction {
  int64_t nodes = 0, works = 0;
  double bytes = 0;  // moved bytes
  TimeByBasis us{};
  double all_us() const;
};
struct StepPrediction {
  std::map<std::string, OpPrediction> by_op;  // includes "outside the recording"
  TimeByBasis us{};
  std::map<std::string, std::string> not_timed;  // keys, and the basis of their estimate
  std::set<std::string> unknown_ops;             // missing from the table of sweeps
  double ms() const;
};

StepPrediction predict(const StepCount& step, const AlgorithmTimes& times);
/// Returns the time of one of the step's nodes.
TimeByBasis node_us(const NodeCount& node, const AlgorithmTimes& times);
/// Returns the bytes that a node reads and writes: each pass of our kernels, and the operands of
/// libraries once.
double moved_bytes(const NodeCount& node, const AlgorithmTimes& times);
/// Returns the file of the first run's algorithms.
std::filesystem::path first_run_algorithms();

}  // namespace trainyard::bench
