// src/train/evaluate.h: computes metrics over a set of rows, exactly for any number of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/resident_rows.h"
#include "src/data/load/loader.h"
#include "src/data/preprocessing.h"
#include "src/job/reporter.h"
#include "src/train/metric_accumulator.h"

namespace trainyard {

struct Evaluation {
  std::vector<std::pair<std::string, double>> values;  // by metric, in the order of the names
  std::vector<std::vector<int64_t>> confusion;         // [label][prediction], if requested
};

/// A model as seen by an evaluation: a program with a fixed batch size.
class BatchModel {
 public:
  virtual ~BatchModel() = default;
  virtual int64_t evaluation_batch() const = 0;
  /// Runs `input`, which contains evaluation_batch() rows. Then evaluation_output(row) is the
  /// output of each row, valid until the next call.
  /// `positions` are those of rows of documents; else empty.
  virtual void evaluate(std::span<const std::byte> input,
                        std::span<const std::byte> positions = {}) = 0;
  /// Like evaluate(), for rows that are resident on the model's device: one sample per row of the
  /// batch.
  virtual void evaluate_resident(std::span<const kernels::ResidentSample> samples);
  virtual std::span<const float> evaluation_output(int64_t row) = 0;
};

/// Where a run of the program reads its rows.
enum class RowsFrom : uint8_t { kHost, kDevice };

/// Evaluates rows of one dataset with one model; caches data that is the same for all rows.
class Evaluator {
 public:
  /// `names` are metric names (src/job/metrics.h). All references must outlive the Evaluator.
  Evaluator(BatchModel& model, const DatasetSchema& schema, const Preprocessing& preprocessing,
            const Objective& objective, std::vector<std::string> names);

  /// Runs `rows` of the partition, at least one, through the evaluation program in batches of its
  /// fixed size. The last batch is padded with copies of its last row, which are not counted.
  /// `after_batch`, if given, is called after each batch. With kDevice the partition must be
  /// resident on the model's device; the metrics are the same.
  Evaluation evaluate(const Partition& partition, std::span<const int64_t> rows,
                      const std::function<void()>& after_batch = nullptr,
                      RowsFrom from = RowsFrom::kHost);

 private:
  /// Runs the program once. Afterwards batch_ contains the input and the targets if the metrics
  /// need them.
  void run(const Partition& partition, std::span<const int64_t> selected, RowsFrom from);
  int32_t label_of(const Partition& partition, int64_t row, size_t i, size_t position) const;
  void add_row(const Partition& partition, int64_t row, size_t i, std::span<const float> output,
               MetricAccumulator& metrics) const;

  BatchModel& model_;
  const Preprocessing& preprocessing_;
  const Objective objective_;
  const RowTransform transform_;
  const std::vector<std::string> names_;
  std::vector<int64_t> token_bytes_;  // of a language model: bytes of each token's text
  Batch batch_;
  std::vector<kernels::ResidentSample> samples_;
};

/// Returns one point per metric, with the key "<prefix>/<metric>".
std::vector<MetricPoint> to_metrics(const Evaluation& e, const std::string& prefix, int64_t step);

}  // namespace trainyard
