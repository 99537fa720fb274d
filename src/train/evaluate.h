// src/train/evaluate.h: metrics over a set of rows, exact for any number of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/held_rows.h"
#include "src/data/load/loader.h"
#include "src/data/preprocessing.h"
#include "src/job/reporter.h"
#include "src/train/metric_accumulator.h"

namespace trainyard {

struct Evaluation {
  std::vector<std::pair<std::string, double>> values;  // by metric, in the order of the names
  std::vector<std::vector<int64_t>> confusion;         // [label][prediction], if requested
};

/// A model as an evaluation sees it: a program of a fixed batch.
class BatchModel {
 public:
  virtual ~BatchModel() = default;
  virtual int64_t evaluation_batch() const = 0;
  /// `input` holds evaluation_batch() rows. Then evaluation_output(row) is what it gave for each of
  /// them, valid until the next call.
  virtual void evaluate(std::span<const std::byte> input) = 0;
  /// The same of rows that the model's device holds: so many samples of them.
  virtual void evaluate_held(std::span<const kernels::HeldSample> samples);
  virtual std::span<const float> evaluation_output(int64_t row) = 0;
};

/// Where a run of the program finds its rows.
enum class RowsFrom : uint8_t { kHost, kDevice };

/// Evaluates rows of one dataset by one model; keeps what is the same for all of them.
class Evaluator {
 public:
  /// `names`: metrics.h. All references outlive it.
  Evaluator(BatchModel& model, const DatasetSchema& schema, const Preprocessing& preprocessing,
            const Objective& objective, std::vector<std::string> names);

  /// Runs `rows` of the partition, at least one, through the evaluation program in batches of its
  /// fixed size. The last batch is filled up with copies of its last row, which are not counted.
  /// `after_batch`, if given, is called behind each. kDevice: the model's device holds the
  /// partition; the values are the same.
  Evaluation evaluate(const Partition& partition, std::span<const int64_t> rows,
                      const std::function<void()>& after_batch = nullptr,
                      RowsFrom from = RowsFrom::kHost);

 private:
  /// One run of the program. Behind it batch_ has the input where metrics look at it.
  void run(const Partition& partition, std::span<const int64_t> selected, RowsFrom from);
  int32_t label_of(const Partition& partition, int64_t row, size_t position) const;
  void add_row(const Partition& partition, int64_t row, size_t i, std::span<const float> output,
               MetricAccumulator& metrics) const;

  BatchModel& model_;
  const Preprocessing& preprocessing_;
  const Objective objective_;
  const RowTransform transform_;
  const std::vector<std::string> names_;
  std::vector<int64_t> token_bytes_;  // of a stream of tokens: what each takes in the text
  Batch batch_;
  std::vector<kernels::HeldSample> samples_;
};

/// "<prefix>/<metric>" for every value.
std::vector<MetricPoint> to_metrics(const Evaluation& e, const std::string& prefix, int64_t step);

}  // namespace trainyard
