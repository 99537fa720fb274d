// proto/convert/run.h: converts the reports of a run to messages.
#pragma once

#include <span>

#include "src/checkpoint/weights_file.h"
#include "src/data/schema.h"
#include "src/inference/evaluate_model.h"
#include "src/inference/predictor.h"
#include "src/job/recipe.h"
#include "src/job/reporter.h"
#include "src/job/run_plan.h"
#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/model_service.pb.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard {

v1::Recipe::Precision to_proto(Precision precision);
v1::Recipe::Recompute to_proto(Recompute recompute);
/// Returns one or several values; {NONE} if nothing is sharded.
std::vector<v1::Resources::Shard> to_proto(Shard shard);
/// Returns FP32 for an unknown value.
Precision to_engine(v1::Recipe::Precision precision);
v1::RunPlan to_proto(const RunPlan& plan);
v1::InitialWeightsReport to_proto(const InitialWeightsReport& report);

/// Returns a tensor of a safetensors file, without its values.
v1::WeightTensor to_proto(const FileTensor& tensor);
FileTensor to_engine(const v1::WeightTensor& tensor);

/// Returns the sum of the parts that the job allocates on its device.
int64_t total_bytes(const v1::MemoryPlan& memory);
/// Returns the CPU memory that a job needs for itself: includes the copy of a checkpoint and
/// prepared batches, but no resident dataset, and no mapped file.
int64_t own_bytes_on_cpu(const v1::MemoryPlan& memory);
/// Returns the CPU memory that a job needs if no other job has mapped the same file.
int64_t bytes_on_cpu(const v1::MemoryPlan& memory);
/// Returns the GPU memory that a job needs: parameters that are mapped on the CPU are copied there.
int64_t bytes_on_gpu(const v1::MemoryPlan& memory);

v1::RunTimes to_proto(const RunTimes& times);

/// Converts points to columns, with one series per key in order of first appearance. Values that
/// are not finite are listed in non_finite and never sent as numbers.
v1::MetricBatch to_proto(std::span<const MetricPoint> points);

std::vector<v1::ConfusionMatrix> to_proto(const ConfusionMatrices& matrices,
                                          const std::vector<std::string>& classes);

/// Converts predictions. `rows` are the predicted rows, which determine the unseen categories.
v1::PredictResponse to_proto(std::span<const Prediction> predictions, const RawRows& rows,
                             const DatasetSchema& schema);

v1::EvaluateResponse to_proto(const ModelEvaluation& evaluation);

/// Converts a refusal to a worker's outcome, and back.
v1::Outcome to_outcome(const Error& error);
Error to_error(const v1::Outcome& outcome);

}  // namespace trainyard
