#include "src/train/resume.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "src/job/retention.h"

namespace trainyard {

namespace {

using Json = nlohmann::json;

// A value is not finite if all bits of its exponent are set. The inner loop has no early exit, so
// that it is vectorized, since training waits for it.
template <typename Bits>
bool all_finite(std::span<const std::byte> bytes, Bits exponent) {
  constexpr size_t kBlock = 4096;
  const size_t count = bytes.size() / sizeof(Bits);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t end = std::min(count, begin + kBlock);
    Bits bad = 0;
    for (size_t i = begin; i < end; ++i) {
      Bits value;
      std::memcpy(&value, bytes.data() + i * sizeof(Bits), sizeof(Bits));
      bad |= static_cast<Bits>((value & exponent) == exponent);
    }
    if (bad != 0) return false;
  }
  return true;
}

Error damaged_state(const std::filesystem::path& path) {
  return make_error(ErrorCode::kDataLoss, "CHECKPOINT_MISMATCH",
                    "checkpoint " + path.filename().string() + ": its loop state is unreadable");
}

// Copies the weights of the best evaluation out of the optimizer's file.
std::shared_ptr<const Snapshot> kept_weights(const SafetensorsFile& optimizer) {
  auto snapshot = std::make_shared<Snapshot>();
  for (const TensorView& t : optimizer.tensors()) {
    if (!t.name.starts_with(kKeptPrefix)) continue;
    snapshot->storage.emplace_back(t.bytes.begin(), t.bytes.end());
    snapshot->weights.push_back(
        {t.name.substr(kKeptPrefix.size()), t.type, snapshot->storage.back(), t.storage});
  }
  return snapshot;
}

Json to_json(const LoopState& state) {
  Json json = {{"train_loss", state.train_loss}, {"train_accuracy", state.train_accuracy}};
  if (state.first_loss) json["first_loss"] = *state.first_loss;
  if (state.evaluated_step > 0) json["evaluated_step"] = state.evaluated_step;
  if (state.best.step > 0) {
    json["best"] = {{"value", state.best.value}, {"step", state.best.step}};
  }
  if (state.evaluated_step > 0) {
    json["stopping"] = {{"any", state.stopping.any},
                        {"best", state.stopping.best},
                        {"since", state.stopping.evaluations_since}};
  }
  return json;
}

/// Returns the number of devices that trained together when the checkpoint was written.
int64_t ranks_of(const LoadedCheckpoint& checkpoint) {
  const Json json = Json::parse(checkpoint.state.extra_json, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("ranks") && json["ranks"].is_number_integer()
             ? json["ranks"].get<int64_t>()
             : 1;
}

std::string where(std::string_view backend, int threads, int64_t ranks) {
  return std::string(backend) + " and " + std::to_string(threads) + " threads" +
         (ranks > 1 ? " for each of " + std::to_string(ranks) + " devices" : "");
}

Result<LoopState> loop_state(const LoadedCheckpoint& checkpoint) {
  const Json json = Json::parse(checkpoint.state.extra_json, nullptr, /*allow_exceptions=*/false);
  LoopState state;
  state.step = checkpoint.state.step;
  try {
    state.train_loss = json.at("train_loss").get<double>();
    state.train_accuracy = json.at("train_accuracy").get<double>();
    if (json.contains("first_loss")) state.first_loss = json.at("first_loss").get<double>();
    state.evaluated_step = json.value("evaluated_step", int64_t{0});
    if (json.contains("best")) {
      state.best.value = json.at("best").at("value").get<double>();
      state.best.step = json.at("best").at("step").get<int64_t>();
      state.best.weights = kept_weights(checkpoint.optimizer);
    }
    if (json.contains("stopping")) {
      const Json& stopping = json.at("stopping");
      state.stopping.any = stopping.at("any").get<bool>();
      state.stopping.best = stopping.at("best").get<double>();
      state.stopping.evaluations_since = stopping.at("since").get<int64_t>();
    }
  } catch (const Json::exception&) {
    return damaged_state(checkpoint.path);
  }
  return state;
}

}  // namespace

std::string find_not_finite(const Snapshot& snapshot) {
  for (const TensorView& t : snapshot.weights) {
    if (t.storage != Storage::kAsTyped) continue;  // not trained: checked when it was loaded
    const bool finite = t.type.dtype == DType::kF64
                            ? all_finite<uint64_t>(t.bytes, 0x7ff0'0000'0000'0000)
                        : t.type.dtype == DType::kF32 ? all_finite<uint32_t>(t.bytes, 0x7f80'0000)
                                                      : true;
    if (!finite) return t.name;
  }
  return {};
}

Result<std::filesystem::path> save(Files& files, const TrainJob& job, const RunRecord& run,
                                   std::string_view backend, const AlgorithmRecord& algorithms,
                                   const LoopState& state, const Snapshot& snapshot) {
  if (Status s = check_parent_exists(job.checkpoints); !s.ok()) return std::move(s).error();
  CheckpointState checkpoint;
  checkpoint.step = state.step;
  checkpoint.seed = job.recipe.seed;
  checkpoint.threads = job.threads;
  checkpoint.backend = backend;
  checkpoint.job_digest = run.digest;
  Json extra = to_json(state);
  extra["run"] = run.description;
  if (job.ranks > 1) extra["ranks"] = job.ranks;
  if (!algorithms.empty()) extra["algorithms"] = to_json(algorithms);
  checkpoint.extra_json = extra.dump();
  std::vector<TensorView> optimizer = snapshot.optimizer;
  if (state.best.weights != nullptr) {
    for (const TensorView& t : state.best.weights->weights) {
      if (t.storage != Storage::kAsTyped) continue;  // not trained: the same at every step
      optimizer.push_back({std::string(kKeptPrefix) + t.name, t.type, t.bytes, t.storage});
    }
  }
  ASSIGN_OR_RETURN(std::filesystem::path path, save_checkpoint(files, job.checkpoints, checkpoint,
                                                               snapshot.weights, optimizer));
  prune_checkpoints(files, job.checkpoints, retention_of(job.recipe, state.best.step));
  return path;
}

Result<std::optional<LoadedCheckpoint>> find_checkpoint(const TrainJob& job,
                                                        const RunIdentity& identity,
                                                        Reporter& reporter) {
  std::vector<std::filesystem::path> damaged;
  auto loaded = load_newest_checkpoint(job.checkpoints, &damaged);
  for (const std::filesystem::path& path : damaged) {
    reporter.log("checkpoint " + path.filename().string() + " is damaged and was skipped");
  }
  if (!loaded.ok()) {
    if (loaded.error().code == ErrorCode::kNotFound) return std::optional<LoadedCheckpoint>();
    return std::move(loaded).error();
  }
  const std::string name = "checkpoint " + loaded->path.filename().string();
  const RunRecord recorded = record_of(loaded->state);
  const std::string difference = identity.difference(recorded);
  if (identity.is_in_another_arithmetic(recorded)) {
    return make_error(ErrorCode::kFailedPrecondition, "CHECKPOINT_FOREIGN",
                      name +
                          " was written by a version whose computations differ, so the job would "
                          "continue with other bits (" +
                          difference +
                          "); expected a retry or a fork of the job, or a folder without "
                          "checkpoints");
  }
  if (!difference.empty()) {
    return make_error(ErrorCode::kFailedPrecondition, "CHECKPOINT_FOREIGN",
                      name + " belongs to another job: " + difference +
                          "; expected the same job, or a folder without checkpoints");
  }
  return std::optional(std::move(*loaded));
}

Result<AlgorithmRecord> algorithms_of(const LoadedCheckpoint& checkpoint) {
  const Json json = Json::parse(checkpoint.state.extra_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("algorithms")) return AlgorithmRecord();
  auto record = parse_algorithm_record(json["algorithms"]);
  if (!record.ok()) return damaged_state(checkpoint.path);
  return record;
}

Result<LoopState> resume(const LoadedCheckpoint& checkpoint, const TrainJob& job,
                         std::string_view backend, const AlgorithmRecord& algorithms,
                         TrainingSession& session, Reporter& reporter) {
  const CheckpointState& state = checkpoint.state;
  const int64_t ranks = ranks_of(checkpoint);
  if (state.threads != job.threads || state.backend != backend || ranks != job.ranks) {
    reporter.log("resuming with backend " + where(backend, job.threads, job.ranks) +
                 " a checkpoint written with backend " +
                 where(state.backend, state.threads, ranks) +
                 ": results may differ in their last bits");
  }
  ASSIGN_OR_RETURN(const AlgorithmRecord recorded, algorithms_of(checkpoint));
  for (const auto& [device_class, choices] : algorithms) {
    if (recorded.empty() || recorded.contains(device_class)) continue;
    reporter.log("resuming on " + device_class + " a checkpoint of " + recorded.begin()->first +
                 ": its algorithms are chosen again, and results may differ in their last bits");
  }
  if (Status s = session.load(checkpoint.weights, checkpoint.optimizer); !s.ok()) {
    return std::move(s).error();
  }
  return loop_state(checkpoint);
}

}  // namespace trainyard
