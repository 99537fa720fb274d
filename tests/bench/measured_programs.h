// tests/bench/measured_programs.h: the steps that the first run measured, as they were then (commit
// 88e669a): what each submitted, in the terms of the model (step_model.h). The programs have
// changed since, so today's graphs cannot say whether the model's constants are right; these can.
//
// The constants are fitted on the rows of models without a performance goal. The rows of all other
// models are held out, so they show the error of the step model on steps that no constant has seen.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/step_facts.h"

namespace trainyard::bench {

struct MeasuredProgram {
  std::string model, precision;
  int64_t batch = 0;
  double ms = 0;  // measured; 0: no step within 45 s

  /// Algorithms by their timed microseconds, with the number of their uses. `alike_us`: those that
  /// were not timed themselves, by the timed ones that the model charges instead.
  std::vector<std::pair<double, int64_t>> timed_us, alike_us;
  double rated_us = 0;  // algorithms that are charged by a stated rate
  /// Filters' gradients on cuDNN's engine 70: FLOP divided by the share of multiprocessors that
  /// have a tile.
  struct Tiles {
    double gflop_by_share = 0, bytes = 0;
    int64_t count = 0;
  };
  std::vector<Tiles> engine_70;
  double bytes = 0;            // moved by our own kernels
  double waits = 0;            // their loads: rounds of memory latency, one behind the other
  double instructions_us = 0;  // kernels that are limited by instructions
  int64_t launches = 0;        // of our own kernels
  double own_attention_flop = 0, own_attention_grad_flop = 0, library_attention_flop = 0;
  int64_t library_attention_plans = 0;

  /// Whether a model has a performance goal, and is therefore left out when constants are fitted.
  bool is_held_out() const;
};

/// Reads tests/bench/results/gpu_h100_2026-11-22/programs.json. Throws std::runtime_error.
std::vector<MeasuredProgram> measured_programs();

/// Returns the predicted milliseconds of a measured step.
double predict_ms(const MeasuredProgram& program, const Facts& facts);

/// Names the facts that one fit on the rows that are not held out determines. If it has several
/// facts, the fit only determines their common factor.
struct FittedConstant {
  std::string_view name;
  std::vector<Fact Facts::*> facts;
};
std::vector<FittedConstant> fitted_constants();

/// Returns the sum of (predicted / measured - 1)^2 over the rows that are not held out.
double fit_error(const std::vector<MeasuredProgram>& programs, const Facts& facts);

}  // namespace trainyard::bench
