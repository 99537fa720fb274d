// Prints predicted times of training steps on an H100 as Markdown, without needing one
// (step_model.h).
//
//   step_model                          every row of the first run, with the measured time
//   step_model MODEL BATCH PRECISION    one step: by op, and the basis for each problem that was
//                                       not timed. Models are those of bench_models.h
//   --algorithms FILE                   as first argument: the times of another run, as recorded by
//                                       `local run`
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/step_model.h"

namespace trainyard::bench {
namespace {

constexpr size_t kOpsMax = 8;  // ops shown for each row

struct Row {
  MeasuredRow measured;
  StepPrediction prediction;
  double samples_a_second() const {
    return static_cast<double>(measured.batch) / prediction.ms() * 1e3;
  }
};

double share(const TimeByBasis& us, Basis basis, double ms) {
  return us[static_cast<size_t>(basis)] * 1e-3 / ms * 100;
}

std::string title_of(const MeasuredRow& m) {
  return std::string(m.model) + ", " + std::to_string(m.batch);
}

std::vector<std::pair<std::string, OpPrediction>> longest_first(const StepPrediction& p) {
  std::vector<std::pair<std::string, OpPrediction>> ops(p.by_op.begin(), p.by_op.end());
  std::ranges::stable_sort(
      ops, [](const auto& a, const auto& b) { return a.second.all_us() > b.second.all_us(); });
  std::erase_if(ops, [](const auto& op) { return op.second.all_us() == 0; });
  return ops;
}

void print_all(const std::vector<Row>& rows) {
  std::printf(
      "| model, batch | precision | predicted ms | predicted samples/s | measured ms | off by | "
      "timed | fitted | bytes | estimate | submissions |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Row& r : rows) {
    const double ms = r.prediction.ms();
    const MeasuredRow& m = r.measured;
    char measured[64] = "no step within 45 s | ";
    if (m.ms > 0) {
      std::snprintf(measured, sizeof measured, "%.4g | %+.0f %%", m.ms, (ms / m.ms - 1) * 100);
    }
    std::printf("| %s | %.*s | %.4g | %.4g | %s |", title_of(m).c_str(),
                static_cast<int>(m.precision.size()), m.precision.data(), ms, r.samples_a_second(),
                measured);
    for (const Basis b :
         {Basis::kTimed, Basis::kFitted, Basis::kBytes, Basis::kEstimate, Basis::kSubmission}) {
      std::printf(" %.0f %% |", share(r.prediction.us, b, ms));
    }
    std::printf("\n");
  }
}

/// Prints what would be necessary for a row to reach its goal.
void print_aim(const Row& row, const char* what, double aim) {
  if (aim == 0) return;
  const double ms = row.prediction.ms();
  const double needed = static_cast<double>(row.measured.batch) / aim * 1e3;
  const double timed = row.prediction.us[static_cast<size_t>(Basis::kTimed)] * 1e-3;
  std::printf("- **%s, %.*s, %s %.4g samples/s** is %.4g ms a step; predicted are %.4g ms. ",
              title_of(row.measured).c_str(), static_cast<int>(row.measured.precision.size()),
              row.measured.precision.data(), what, aim, needed, ms);
  if (ms <= needed) {
    std::printf("It is met if the prediction is.\n");
    return;
  }
  if (timed < needed) {
    std::printf(
        "Timed algorithms take %.4g ms of it: all else, %.4g ms, would have to take %.4g ms.",
        timed, ms - timed, needed - timed);
  } else {
    std::printf("Timed algorithms alone take %.4g ms: they would have to become faster by %.4g ms.",
                timed, timed - needed);
  }
  std::printf(" Longest are");
  size_t listed = 0;
  for (const auto& [op, of] : longest_first(row.prediction)) {
    if (listed == 5) break;
    std::printf("%s %s %.3g ms", listed++ == 0 ? "" : ",", op.c_str(), of.all_us() * 1e-3);
  }
  std::printf(".\n");
}

void print_ops(const StepPrediction& p, size_t count_max) {
  std::printf(
      "| op | nodes | works | GB moved | predicted ms | timed | fitted | bytes | estimate | "
      "submissions |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  size_t listed = 0;
  for (const auto& [op, of] : longest_first(p)) {
    if (listed++ == count_max) break;
    std::printf("| %s | %lld | %lld | %.4g | %.4g |", op.c_str(), static_cast<long long>(of.nodes),
                static_cast<long long>(of.works), of.bytes * 1e-9, of.all_us() * 1e-3);
    for (const double us : of.us) std::printf(" %.4g |", us * 1e-3);
    std::printf("\n");
  }
  for (const std::string& op : p.unknown_ops) {
    std::printf("\n%s is not in the table of sweeps: each operand is taken once.\n", op.c_str());
  }
}

StepPrediction predict_row(const MeasuredRow& m, const AlgorithmTimes& times) {
  const std::optional<Precision> precision = find_precision(m.precision);
  if (!precision.has_value()) throw std::invalid_argument("precision: expected bf16, tf32 or fp32");
  return predict(count_step({std::string(m.model), m.batch, *precision}), times);
}

void print_first_run(const AlgorithmTimes& times) {
  std::vector<Row> rows;
  for (const MeasuredRow& m : measured_rows()) rows.push_back({m, predict_row(m, times)});
  std::printf(
      "# Predicted steps on an H100\n\n**Predicted, not measured**, by `step_model` "
      "(docs/decisions/model-of-gpu-steps.md). Shares say what a prediction rests on. Measured: "
      "`gpu_h100_2026-11-22/`.\n\n");
  print_all(rows);
  std::printf("\n## What would have to be true for the aims\n\n");
  for (const Row& r : rows) {
    print_aim(r, "at least", r.measured.least);
    print_aim(r, "aim", r.measured.aim);
  }
  std::printf("\n## By op, the %zu longest; milliseconds by what they rest on\n", kOpsMax);
  for (const Row& r : rows) {
    std::printf("\n%s, %.*s; %zu problems were not timed:\n\n", title_of(r.measured).c_str(),
                static_cast<int>(r.measured.precision.size()), r.measured.precision.data(),
                r.prediction.not_timed.size());
    print_ops(r.prediction, kOpsMax);
  }
}

void print_one(const MeasuredRow& m, const AlgorithmTimes& times) {
  const StepPrediction p = predict_row(m, times);
  std::printf("%s, %.*s: predicted %.4g ms\n\n", title_of(m).c_str(),
              static_cast<int>(m.precision.size()), m.precision.data(), p.ms());
  print_ops(p, p.by_op.size());
  std::printf("\n%zu problems were not timed:\n\n", p.not_timed.size());
  for (const auto& [key, how] : p.not_timed) {
    if (key.starts_with("gelu")) {  // its product is a problem of its own
      std::printf("- `%s`: %s\n", key.c_str(), how.c_str());
      continue;
    }
    std::printf("- `%s`, %.4g ms: %s\n", key.c_str(), times.charge(key).us * 1e-3, how.c_str());
  }
}

int run(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::string file = first_run_algorithms();
  if (words.size() >= 2 && words[0] == "--algorithms") {
    file = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  if (!words.empty() && words.size() != 3) {
    std::fprintf(stderr, "usage: step_model [--algorithms FILE] [MODEL BATCH PRECISION]\n");
    return 2;
  }
  const AlgorithmTimes times(file);
  if (words.empty()) {
    print_first_run(times);
  } else {
    print_one({words[0], std::atoi(words[1].c_str()), words[2], 0, 0, 0}, times);
  }
  return 0;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  try {
    return trainyard::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "step_model: %s\n", e.what());
    return 1;
  }
}
