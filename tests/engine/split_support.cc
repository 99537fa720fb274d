#include "tests/engine/split_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "src/checkpoint/safetensors.h"
#include "src/job/train_job.h"
#include "src/train/trainer.h"

namespace trainyard::testing {

void make_rows(const Workspace& w, int64_t rows, int64_t test_rows,
               const std::function<void(std::ostream& out, int64_t row)>& write_row) {
  const auto write = [&](const std::filesystem::path& path, int64_t first, int64_t count) {
    std::ofstream out(path);
    for (int i = 0; i < 8; ++i) out << 'x' << i << ',';
    out << "y\n";
    for (int64_t row = first; row < first + count; ++row) write_row(out, row);
  };
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  request.csv.target_kind = "class";
  write(w / "rows.csv", 0, rows);
  write(w / "test.csv", rows, test_rows);
  request.sources = {{"data", w / "rows.csv"}, {"test", w / "test.csv"}};
  const auto schema = ingest(request, w / "dataset", local_files());
  if (!schema.ok()) ADD_FAILURE() << schema.error().message;
}

void make_classes(const Workspace& w, int64_t classes, int64_t rows) {
  make_rows(w, rows, 20, [&](std::ostream& out, int64_t row) {
    const int64_t label = row < classes ? row : row * row * 7 % classes;
    for (int64_t i = 0; i < 8; ++i) {
      const auto noise = static_cast<double>((row * 37 + i * 11) % 101) / 101;
      out << std::sin(static_cast<double>(label * (i + 1))) + noise << ',';
    }
    out << "class" << label << '\n';
  });
}

void make_text(const Workspace& w, int letters, const char* tokenizer) {
  std::string text;
  for (int i = 0; i < letters; ++i) text += static_cast<char>('a' + (i * i + i / 5) % 13);
  std::ofstream(w / "input.txt") << text;
  IngestRequest request;
  request.format = "text";
  request.text.tokenizer = tokenizer;
  request.text.test_share = 0.1;
  request.sources.push_back({"data", w / "input.txt"});
  const auto schema = ingest(request, w / "dataset", local_files());
  if (!schema.ok()) ADD_FAILURE() << schema.error().message;
}

void expect_the_curve(const Recorder& expected, const Recorder& got, double bound) {
  for (const auto& [key, values] : expected.series) {
    if (key == "train/samples_per_second" || key == "train/data_wait_share") continue;
    const auto series = got.series.find(key);
    ASSERT_NE(series, got.series.end()) << key;
    ASSERT_EQ(series->second.size(), values.size()) << key;
    for (const auto& [step, value] : values) {
      EXPECT_NEAR(series->second.at(step), value, bound * std::max(1.0, std::fabs(value)))
          << key << " of step " << step;
    }
  }
}

void expect_the_curve_on(
    const std::vector<int64_t>& all_ranks, const std::vector<Shard>& shards,
    const Recorder& expected, double bound,
    const std::function<TrainJob(const std::string& name, Shard shard)>& job_of,
    const std::function<void(const std::string& name, const Recorder& got)>& check) {
  for (const int64_t ranks : all_ranks) {
    for (const Shard shard : shards) {
      const std::string name = name_of(shard) + std::to_string(ranks);
      SCOPED_TRACE(name);
      Recorder got;
      const TrainResult result = run(job_of(name, shard), ranks, got);
      EXPECT_EQ(result.arena_planned_bytes, result.arena_used_bytes);
      EXPECT_EQ(got.plan.memory.total(), result.arena_planned_bytes);
      EXPECT_EQ(got.plan.parameter_count, expected.plan.parameter_count);
      EXPECT_EQ(got.plan.trained_parameter_count, expected.plan.trained_parameter_count);
      expect_the_curve(expected, got, bound);
      if (check) check(name, got);
    }
  }
}

void expect_to_resume_by_micro_batches(
    const std::function<TrainJob(const std::string& name, const Change& change)>& job_of) {
  for (const int64_t ranks : {1, 2}) {
    for (const int64_t micro_batches : {1, 2}) {
      const std::string name = std::to_string(ranks) + std::to_string(micro_batches);
      const auto named = [&](const std::string& run) {
        return job_of(name + run, [&](TrainJob& job) {
          job.recipe.checkpoint_every_steps = 7;
          job.recipe.accumulate_steps = micro_batches;
        });
      };
      expect_to_resume(named, ranks, 7);
    }
  }
}

void expect_the_curve_over(const std::vector<RankLayout>& legs, int64_t steps_each,
                           const Recorder& expected, const TrainJob& job) {
  for (size_t leg = 0; leg < legs.size(); ++leg) {
    SCOPED_TRACE(leg);
    const int64_t first_step = static_cast<int64_t>(leg) * steps_each;
    Recorder got;
    go_on(job, legs[leg], leg + 1 == legs.size() ? 0 : first_step + steps_each, got);
    EXPECT_EQ(got.plan.first_step, first_step);
    for (const auto& [step, loss] : got.series["train/loss"]) {
      EXPECT_NEAR(loss, expected.series.at("train/loss").at(step), 1e-5) << step;
    }
  }
}

void expect_the_same_bits_twice(const std::function<TrainJob(const std::string& name)>& job_of,
                                int64_t ranks, int64_t step) {
  const Recorder of_never = expect_to_resume(job_of, ranks, step);
  const TrainJob twice = job_of("twice");
  Recorder of_twice;
  run(twice, ranks, of_twice);
  for (const char* key : {"train/loss", "val/loss"}) {
    EXPECT_EQ(of_twice.series.at(key), of_never.series.at(key)) << key;
  }
  EXPECT_EQ(weights_of(twice), weights_of(job_of("never")));
}

double distance(const TrainJob& a, const TrainJob& b) {
  const auto x = SafetensorsFile::open(a.model_output / "model.safetensors").value();
  const auto y = SafetensorsFile::open(b.model_output / "model.safetensors").value();
  EXPECT_EQ(x.tensors().size(), y.tensors().size());
  double worst = 0;
  for (const TensorView& t : x.tensors()) {
    const TensorView* other = y.find(t.name);
    if (other == nullptr || other->type != t.type) {
      ADD_FAILURE() << t.name << " is not the same tensor";
      return worst;
    }
    for (size_t i = 0; i < t.bytes.size(); i += sizeof(float)) {
      float p = 0, q = 0;
      std::memcpy(&p, t.bytes.data() + i, sizeof p);
      std::memcpy(&q, other->bytes.data() + i, sizeof q);
      worst = std::max(worst, std::fabs(static_cast<double>(p) - static_cast<double>(q)));
    }
  }
  return worst;
}

Change optimizer(const char* type, double rate, double momentum) {
  return [=](TrainJob& job) {
    job.recipe.optimizer = default_optimizer(type);
    job.recipe.optimizer.learning_rate = rate;
    if (momentum > 0) job.recipe.optimizer.momentum = momentum;
  };
}

}  // namespace trainyard::testing
