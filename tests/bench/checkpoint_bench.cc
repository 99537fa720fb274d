// Measures the cost of checkpoints for training: the time from step to step, with and without them,
// through train() on the CPU, with the fsyncs of a real disk.
//
//   checkpoint_bench FOLDER [hidden=2000] [steps=60] [between=20] [rounds=3] [threads=1]
//
// `between`: the steps between checkpoints; 0: by time, the default of a recipe. The model is an
// MLP of three layers of that width, trained with Adam; a checkpoint has three times the size of
// its parameters. Rounds with and without checkpoints alternate. A step's time is from the end of
// the step before to its own end, so work between steps counts; the checkpoint at the end of every
// run does not. One JSON line per round.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/data/dataset.h"
#include "src/job/reporter.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/runtime/backend.h"
#include "src/train/trainer.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Steady = std::chrono::steady_clock;

constexpr int kRows = 256;
constexpr int kColumns = 32;

class StepTimes final : public Reporter {
 public:
  void started(const RunPlan&) override { last_ = Steady::now(); }
  void progressed() override {
    const auto now = Steady::now();
    ms.push_back(std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
  }
  void metrics(std::span<const MetricPoint>) override {}
  void checkpoint_saved(int64_t, const fs::path& path) override {
    ++saved;
    bytes = 0;
    for (const auto& file : fs::directory_iterator(path)) bytes += file.file_size();
  }
  void checkpoint_failed(int64_t, const Error& error) override {
    std::fprintf(stderr, "%s\n", error.message.c_str());
  }
  void log(std::string_view) override {}

  std::vector<double> ms;
  int saved = 0;
  uint64_t bytes = 0;

 private:
  Steady::time_point last_;
};

Status make_dataset(const fs::path& folder) {
  const fs::path csv = folder / "rows.csv";
  {
    std::ofstream out(csv);
    for (int i = 0; i < kColumns; ++i) out << 'x' << i << ',';
    out << "y\n";
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < kColumns; ++i) out << (row * 31 + i * 17) % 23 << ',';
      out << row % 7 << '\n';
    }
  }
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  request.csv.target_kind = "numeric";
  request.sources.push_back({"data", csv});
  const auto schema = ingest(request, folder / "dataset", local_files());
  return schema.ok() ? Status() : Status(schema.error());
}

struct Options {
  fs::path folder;
  int64_t hidden = 2000, steps = 60, between = 20, rounds = 3;
  int threads = 1;
};

double cpu_ms() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

Status run_round(const Options& o, int64_t round, bool checkpoints) {
  TrainJob job;
  job.model.preset = "mlp";
  job.model.parameters.set("hidden", std::vector<int64_t>{o.hidden, o.hidden, o.hidden});
  job.recipe.steps = o.steps;
  job.recipe.batch_size = 16;
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 1e-4;
  job.recipe.checkpoint_every_steps = checkpoints ? o.between : o.steps;
  job.dataset = o.folder / "dataset";
  job.checkpoints = o.folder / "checkpoints";
  job.model_output = o.folder / "model";
  job.threads = o.threads;
  std::error_code ignored;
  fs::remove_all(job.checkpoints, ignored);
  fs::remove_all(job.model_output, ignored);
  StepTimes times;
  const double cpu_before = cpu_ms();
  const auto backend = make_cpu_backend(o.threads);
  if (const auto done = train(job, *backend, local_files(), times, {}); !done.ok()) {
    return done.error();
  }
  double sum = 0;
  for (const double ms : times.ms) sum += ms;
  std::vector<double> sorted = times.ms;
  std::sort(sorted.begin(), sorted.end());
  std::printf(
      "{\"round\": %lld, \"checkpoints\": %d, \"checkpoint_mb\": %.1f, \"steps\": %zu, "
      "\"median_ms\": %.2f, \"mean_ms\": %.2f, \"longest_ms\": %.1f, \"cpu_ms\": %.3f}\n",
      static_cast<long long>(round), times.saved - 1, static_cast<double>(times.bytes) / 1e6,
      sorted.size(), sorted[sorted.size() / 2], sum / static_cast<double>(sorted.size()),
      sorted.back(), (cpu_ms() - cpu_before) / static_cast<double>(sorted.size()));
  std::fflush(stdout);
  return {};
}

Status run(const Options& o) {
  fs::create_directories(o.folder);
  fs::remove_all(o.folder / "dataset");
  if (Status s = make_dataset(o.folder); !s.ok()) return s;
  for (int64_t round = 0; round < o.rounds; ++round) {
    for (const bool checkpoints : {false, true}) {
      if (Status s = run_round(o, round, checkpoints); !s.ok()) return s;
    }
  }
  return {};
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: checkpoint_bench FOLDER [hidden] [steps] [between] [rounds] [threads]\n");
    return 2;
  }
  trainyard::Options o;
  o.folder = argv[1];
  if (argc > 2) o.hidden = std::atoll(argv[2]);
  if (argc > 3) o.steps = std::atoll(argv[3]);
  if (argc > 4) o.between = std::atoll(argv[4]);
  if (argc > 5) o.rounds = std::atoll(argv[5]);
  if (argc > 6) o.threads = std::atoi(argv[6]);
  if (const auto s = trainyard::run(o); !s.ok()) {
    std::fprintf(stderr, "%s\n", s.error().message.c_str());
    return 1;
  }
  return 0;
}
