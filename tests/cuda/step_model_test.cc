// Catches: a model of a step's time (tests/bench/step_model.h) that no longer reproduces the times
// of an H100, whose table lacks an op, or that charges a problem that was never timed without
// saying so; and a constant that was changed with a mend, without a new measurement.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/models/model_spec.h"
#include "tests/bench/measured_programs.h"
#include "tests/bench/step_model.h"

namespace trainyard::bench {
namespace {

const AlgorithmTimes& first_run() {
  static const AlgorithmTimes times(first_run_algorithms());
  return times;
}

const char* const kTimed =
    "matmul sizes=16384,2304,768 batch=1,0,0,0 rows=0,0,0 transposed=0,1 bf16>bf16 epilogue=0 bias "
    "alignment=16 workspace=33554432";

TEST(StepModel, KeysSayTheirFlopsAndBytes) {
  const KeyedProblem product = parse_algorithm_key(kTimed);
  EXPECT_FALSE(product.is_convolution);
  EXPECT_TRUE(product.is_half());
  EXPECT_DOUBLE_EQ(product.flops, 2.0 * 16384 * 2304 * 768);
  EXPECT_DOUBLE_EQ(product.bytes, 2.0 * (16384 * 768 + 768 * 2304 + 16384 * 2304));
  const KeyedProblem convolution = parse_algorithm_key(
      "convolution pass=2 image=2,3,9,9 filters=4,3,3,3 strides=2,2 pads=1,1,1,1 dilations=1,1 "
      "channels_last F32>F32 tf32 workspace=268435456");
  EXPECT_EQ(convolution.pass, 2);
  EXPECT_TRUE(convolution.tf32);
  EXPECT_DOUBLE_EQ(convolution.flops, 2.0 * (2 * 4 * 5 * 5) * (3 * 3 * 3));
  EXPECT_DOUBLE_EQ(convolution.bytes, 4.0 * (2 * 3 * 81 + 4 * 27 + 2 * 4 * 25));
  EXPECT_THROW(parse_algorithm_key("pooling sizes=1"), std::invalid_argument);
  EXPECT_THROW(parse_algorithm_key("matmul sizes=1,2"), std::invalid_argument);
}

TEST(StepModel, TimedAlgorithmIsChargedWhatItTook) {
  const Charge charge = first_run().charge(kTimed);
  EXPECT_EQ(charge.basis, Basis::kTimed);
  EXPECT_TRUE(charge.how.empty());
  EXPECT_NEAR(charge.us, 85.3 - facts().measuring_us.value, 0.1);
}

TEST(StepModel, UnknownProblemIsSaidToBeNotTimedAndTakesTheStatedRate) {
  const Charge charge = first_run().charge(
      "matmul sizes=8192,8192,8192 batch=1,0,0,0 rows=0,0,0 transposed=0,1 bf16>bf16 epilogue=0 "
      "alignment=16 workspace=33554432");
  EXPECT_EQ(charge.basis, Basis::kEstimate);
  EXPECT_TRUE(charge.how.starts_with("not timed")) << charge.how;
  EXPECT_NEAR(
      charge.us,
      2.0 * std::pow(8192.0, 3) / facts().half_product.value * 1e6 + facts().submission_us.value,
      1e-6);
}

// The head's rows have another pitch than the timed ones, which makes it a different problem.
TEST(StepModel, AnotherPitchIsNotAlike) {
  const char* const head =
      "matmul sizes=16384,50257,768 batch=1,0,0,0 rows=0,0,%s transposed=0,1 bf16>F32 epilogue=0 "
      "alignment=16 workspace=33554432";
  std::string dense = head, pitched = head;
  dense.replace(dense.find("%s"), 2, "0");
  pitched.replace(pitched.find("%s"), 2, "50304");
  EXPECT_EQ(first_run().charge(dense).basis, Basis::kTimed);
  const Charge charge = first_run().charge(pitched);
  EXPECT_EQ(charge.basis, Basis::kEstimate);
  EXPECT_LT(charge.us, first_run().charge(dense).us);
}

// An algorithm that was timed in a workspace also fits into a larger one, but maybe not into a
// smaller one.
TEST(StepModel, TimesHoldInALargerWorkspace) {
  const std::string problem =
      "convolution pass=0 image=128,256,56,56 filters=128,256,1,1 strides=1,1 pads=0,0,0,0 "
      "dilations=1,1 channels_last bf16>bf16 workspace=";
  const Charge timed = first_run().charge(problem + "268435456"),
               larger = first_run().charge(problem + "341901312"),
               smaller = first_run().charge(problem + "1048576");
  EXPECT_EQ(timed.basis, Basis::kTimed);
  EXPECT_EQ(larger.basis, Basis::kTimed);
  EXPECT_TRUE(larger.how.empty()) << larger.how;
  EXPECT_EQ(larger.us, timed.us);
  EXPECT_EQ(smaller.basis, Basis::kEstimate);
  EXPECT_TRUE(smaller.how.starts_with("not timed")) << smaller.how;
}

// The naive engine was chosen because no other one fitted.
TEST(StepModel, NaiveEngineIsNotChargedInALargerWorkspace) {
  const std::string problem =
      "convolution pass=1 image=128,256,56,56 filters=128,256,1,1 strides=1,1 pads=0,0,0,0 "
      "dilations=1,1 channels_last F32>F32 workspace=";
  EXPECT_GT(first_run().charge(problem + "268435456").us, 50'000);
  const Charge larger = first_run().charge(problem + "650248192");
  EXPECT_EQ(larger.basis, Basis::kEstimate);
  EXPECT_LT(larger.us, 5'000);
}

// The fakes have no engine for bf16 -> F32, but the H100 has: the device's choice counts.
TEST(StepModel, TheDevicesWayOfAConvolutionIsTheFirstThatItHas) {
  const std::string problem =
      "convolution pass=2 image=128,128,28,28 filters=512,128,1,1 strides=1,1 pads=0,0,0,0 "
      "dilations=1,1 channels_last ";
  const std::string f32 = problem + "bf16>F32 workspace=268435456",
                    half = problem + "bf16>bf16 workspace=268435456";
  EXPECT_EQ(first_run().taken({{f32, false}, {half, true}}), std::vector{f32});
  EXPECT_EQ(first_run().charge(f32).basis, Basis::kFitted);
  // If only the bf16 result is requested, it was never timed; TF32's time is then a better estimate
  // than a rate.
  EXPECT_EQ(first_run().taken({{half, true}}), std::vector{half});
  const Charge charge = first_run().charge(half);
  EXPECT_EQ(charge.basis, Basis::kEstimate);
  EXPECT_LT(charge.us, 105.9);  // the time in TF32
  // A choice that leaves the result's format open is found by its operands.
  const Charge any = first_run().charge(problem + "bf16 workspace=268435456");
  EXPECT_EQ(any.us, charge.us);
  EXPECT_EQ(any.how, charge.how);
}

// A constant may have no other value than the one that the fitted rows give, to within a few per
// cent. So it cannot follow a change of the code, or the rows that are held out.
TEST(StepModel, ConstantsAreThoseOfTheFittedRows) {
  const std::vector<MeasuredProgram> programs = measured_programs();
  const double error = fit_error(programs, facts());
  for (const FittedConstant& c : fitted_constants()) {
    for (const double factor : {0.95, 1.05}) {
      Facts other = facts();
      for (Fact Facts::*const fact : c.facts) {
        EXPECT_EQ((other.*fact).basis, Basis::kFitted) << c.name;
        (other.*fact).value *= factor;
      }
      EXPECT_GT(fit_error(programs, other), error) << c.name << " times " << factor;
    }
  }
}

// The programs of the first run, by the model: the rows of models with a goal took no part in the
// fit.
TEST(StepModel, HeldOutRowsShowTheError) {
  double squares = 0, furthest = 0;
  int64_t rows = 0;
  std::printf("| model, batch | precision | measured ms | predicted | off by | |\n");
  for (const MeasuredProgram& p : measured_programs()) {
    if (p.ms == 0) continue;
    const double ms = predict_ms(p, facts()), off = ms / p.ms - 1;
    std::printf("| %s, %lld | %s | %.4g | %.4g | %+.1f %% | %s |\n", p.model.c_str(),
                static_cast<long long>(p.batch), p.precision.c_str(), p.ms, ms, 100 * off,
                p.is_held_out() ? "held out" : "fitted");
    if (!p.is_held_out()) continue;
    ++rows;
    squares += off * off;
    furthest = std::max(furthest, std::abs(off));
  }
  const double error = std::sqrt(squares / static_cast<double>(rows));
  std::printf("held out: %lld rows, root mean square %.1f %%, at most %.1f %%\n",
              static_cast<long long>(rows), 100 * error, 100 * furthest);
  EXPECT_EQ(rows, 12);  // GPT-2, ResNet-50, ViT-B and LeNet-5 in three precisions
  EXPECT_LT(error, 0.07);
  EXPECT_LT(furthest, 0.15);
}

// The rates of problems that were never timed, from every second problem that was; the others are
// held out. Odd products and cuDNN's naive engine are exceptions that no rate describes.
TEST(StepModel, RatesAreThoseOfEverySecondTimedProblem) {
  constexpr double kFlopsMin = 1e10;
  for (Fact Facts::*const rate :
       {&Facts::half_product, &Facts::tf32_product, &Facts::f32_product, &Facts::half_convolution,
        &Facts::tf32_convolution, &Facts::f32_convolution}) {
    std::vector<const AlgorithmTimes::Entry*> entries;
    for (const auto& [key, entry] : first_run().entries()) {
      const KeyedProblem& p = entry.problem;
      if (entry.us == 0 || entry.engine == 0 || p.is_odd || p.flops < kFlopsMin) continue;
      if (rate_of(p) == rate) entries.push_back(&entry);
    }
    const auto ratio = [&](const AlgorithmTimes::Entry& e, const Facts& f) {
      return us_by_rate(e.problem, f) / (e.us - f.measuring_us.value);
    };
    const auto error = [&](const Facts& f) {
      double sum = 0;
      for (size_t i = 0; i < entries.size(); i += 2)
        sum += std::pow(std::log(ratio(*entries[i], f)), 2);
      return sum;
    };
    SCOPED_TRACE((facts().*rate).source);
    EXPECT_EQ((facts().*rate).basis, Basis::kFitted);
    for (const double factor : {0.85, 1.15}) {
      Facts other = facts();
      (other.*rate).value *= factor;
      EXPECT_GT(error(other), error(facts())) << (facts().*rate).value << " times " << factor;
    }
    std::vector<double> held_out;
    for (size_t i = 1; i < entries.size(); i += 2) held_out.push_back(ratio(*entries[i], facts()));
    std::ranges::sort(held_out);
    const double median = held_out[held_out.size() / 2];
    std::printf(
        "%.0f TFLOP/s: predicted / timed of %zu held out problems: %.2f, tenths %.2f to %.2f\n",
        (facts().*rate).value * 1e-12, held_out.size(), median, held_out[held_out.size() / 10],
        held_out[held_out.size() * 9 / 10]);
    EXPECT_GT(median, 0.75);
    EXPECT_LT(median, 1.25);
  }
}

// Catches a preset that the benchmarks cannot build. (For models without a performance goal, an op
// that is missing from the table is charged as a kernel that moves each operand once.)
TEST(StepModel, EveryPresetHasAStep) {
  for (const std::string& preset : preset_names()) {
    SCOPED_TRACE(preset);
    const std::string name = preset == "gpt2" ? "gpt2_mini" : preset;
    const StepCount step = count_step({name, 4, Precision::kBf16});
    EXPECT_GT(step.of_nodes().all(), 0);
    EXPECT_GT(predict(step, first_run()).ms(), 0);
  }
}

// No model may become slower; a model that is meant to become faster says what has changed
// (step_facts.cc).
TEST(StepModel, RowsOfTheFirstRunComeOutWithinAQuarter) {
  for (const MeasuredRow& row : measured_rows()) {
    const std::string title = std::string(row.model) + " " + std::string(row.precision);
    SCOPED_TRACE(title);
    const StepPrediction p =
        predict(count_step({std::string(row.model), row.batch, *find_precision(row.precision)}),
                first_run());
    EXPECT_TRUE(p.unknown_ops.empty()) << "not in step_facts.cc: " << *p.unknown_ops.begin();
    EXPECT_NEAR(std::accumulate(p.us.begin(), p.us.end(), 0.0), p.ms() * 1e3, 1e-6);
    double by_op = 0;
    for (const auto& [op, of] : p.by_op) by_op += of.all_us();
    EXPECT_NEAR(by_op, p.ms() * 1e3, 1e-6 * by_op);
    if (row.ms == 0) continue;
    EXPECT_LE(p.ms() / row.ms, 1.25);
    if (row.changed.empty()) {
      EXPECT_GE(p.ms() / row.ms, 0.75);
    }
  }
}

}  // namespace
}  // namespace trainyard::bench
