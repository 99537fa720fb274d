#include "src/train/resume.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "src/base/sha256.h"
#include "src/models/model_json.h"

namespace trainyard {

namespace {

using Json = nlohmann::json;

constexpr int64_t kDigestFileMax = 4096;

Json to_json(const OptimizerSpec& o) {
  return {{"type", o.type},         {"learning_rate", o.learning_rate},
          {"momentum", o.momentum}, {"nesterov", o.nesterov},
          {"beta1", o.beta1},       {"beta2", o.beta2},
          {"epsilon", o.epsilon},   {"weight_decay", o.weight_decay}};
}

Json to_json(const ScheduleSpec& s) {
  return {{"type", s.type},
          {"warmup_steps", s.warmup_steps},
          {"step_size", s.step_size},
          {"gamma", s.gamma},
          {"min_learning_rate", s.min_learning_rate}};
}

template <typename T>
bool all_finite(std::span<const std::byte> bytes) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof(T));
    if (!std::isfinite(value)) return false;
  }
  return true;
}

Error damaged_state(const std::filesystem::path& path) {
  return make_error(ErrorCode::kDataLoss, "CHECKPOINT_MISMATCH",
                    "checkpoint " + path.filename().string() + ": its loop state is unreadable");
}

Result<LoopState> loop_state(const LoadedCheckpoint& checkpoint) {
  const Json json = Json::parse(checkpoint.state.extra_json, nullptr, /*allow_exceptions=*/false);
  LoopState state;
  state.step = checkpoint.state.step;
  if (!json.is_object()) return damaged_state(checkpoint.path);
  for (auto& [key, value] : {std::pair{"train_loss", &state.train_loss},
                             std::pair{"train_accuracy", &state.train_accuracy}}) {
    if (!json.contains(key) || !json[key].is_number()) return damaged_state(checkpoint.path);
    *value = json[key].get<double>();
  }
  return state;
}

}  // namespace

Result<std::string> job_digest(const TrainJob& job) {
  ASSIGN_OR_RETURN(const std::string dataset, read_file(job.dataset / "digest", kDigestFileMax));
  const Recipe& r = job.recipe;
  const Json json = {{"dataset", dataset},
                     {"model", model_to_json(job.model)},
                     {"epochs", r.epochs},
                     {"steps", r.steps},
                     {"batch_size", r.batch_size},
                     {"optimizer", to_json(r.optimizer)},
                     {"schedule", to_json(r.schedule)},
                     {"seed", r.seed},
                     {"shuffle", r.shuffle},
                     {"validation_split", r.validation_split}};
  return sha256_hex(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string find_not_finite(const Snapshot& snapshot) {
  for (const TensorView& t : snapshot.weights) {
    const bool finite = t.type.dtype == DType::kF64   ? all_finite<double>(t.bytes)
                        : t.type.dtype == DType::kF32 ? all_finite<float>(t.bytes)
                                                      : true;
    if (!finite) return t.name;
  }
  return {};
}

Result<std::filesystem::path> save(Files& files, const TrainJob& job, const std::string& digest,
                                   std::string_view backend, const LoopState& state,
                                   const Snapshot& snapshot) {
  CheckpointState checkpoint;
  checkpoint.step = state.step;
  checkpoint.seed = job.recipe.seed;
  checkpoint.threads = job.threads;
  checkpoint.backend = backend;
  checkpoint.job_digest = digest;
  checkpoint.extra_json =
      Json{{"train_loss", state.train_loss}, {"train_accuracy", state.train_accuracy}}.dump();
  ASSIGN_OR_RETURN(
      std::filesystem::path path,
      save_checkpoint(files, job.checkpoints, checkpoint, snapshot.weights, snapshot.optimizer));
  prune_checkpoints(files, job.checkpoints, job.recipe.keep_checkpoints);
  return path;
}

Result<std::optional<LoopState>> resume(const TrainJob& job, const std::string& digest,
                                        std::string_view backend, Session& session,
                                        Reporter& reporter) {
  std::vector<std::filesystem::path> damaged;
  auto loaded = load_newest_checkpoint(job.checkpoints, &damaged);
  for (const std::filesystem::path& path : damaged) {
    reporter.log("checkpoint " + path.filename().string() + " is damaged and was skipped");
  }
  if (!loaded.ok()) {
    if (loaded.error().code == ErrorCode::kNotFound) return std::optional<LoopState>();
    return std::move(loaded).error();
  }
  const CheckpointState& state = loaded->state;
  if (state.job_digest != digest) {
    return make_error(ErrorCode::kFailedPrecondition, "CHECKPOINT_FOREIGN",
                      "checkpoint " + loaded->path.filename().string() +
                          " belongs to a job with another model, recipe or dataset");
  }
  if (state.threads != job.threads || state.backend != backend) {
    reporter.log("resuming with backend " + std::string(backend) + " and " +
                 std::to_string(job.threads) + " threads a checkpoint of " + state.backend +
                 " and " + std::to_string(state.threads) +
                 ": results may differ in their last bits");
  }
  if (Status s = session.load(loaded->weights, loaded->optimizer); !s.ok()) {
    return std::move(s).error();
  }
  ASSIGN_OR_RETURN(const LoopState loop, loop_state(*loaded));
  return std::optional<LoopState>(loop);
}

}  // namespace trainyard
