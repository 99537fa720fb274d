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

// Fields of types that came later are written for those types alone, so that checkpoints of older
// jobs keep their digest.
Json to_json(const OptimizerSpec& o) {
  Json json = {{"type", o.type},         {"learning_rate", o.learning_rate},
               {"momentum", o.momentum}, {"nesterov", o.nesterov},
               {"beta1", o.beta1},       {"beta2", o.beta2},
               {"epsilon", o.epsilon},   {"weight_decay", o.weight_decay}};
  if (o.weight_decay_on != "all") json["weight_decay_on"] = o.weight_decay_on;
  const auto own = [&](const char* field, const Json& value) {
    if (optimizer_uses(o.type, field)) json[field] = value;
  };
  own("alpha", o.alpha);
  own("centered", o.centered);
  own("beta2_decay", o.beta2_decay);
  own("clip_threshold", o.clip_threshold);
  own("scale_min", o.scale_min);
  own("newton_schulz_steps", o.newton_schulz_steps);
  own("adjust_rate", o.adjust_rate);
  own("fallback_learning_rate", o.fallback_learning_rate);
  return json;
}

Json to_json(const ScheduleSpec& s) {
  Json json = {{"type", s.type},
               {"warmup_steps", s.warmup_steps},
               {"step_size", s.step_size},
               {"gamma", s.gamma},
               {"min_learning_rate", s.min_learning_rate}};
  const auto own = [&](const char* field, const Json& value) {
    if (schedule_uses(s.type, field)) json[field] = value;
  };
  own("milestones", s.milestones);
  own("power", s.power);
  own("pct_start", s.pct_start);
  own("div_factor", s.div_factor);
  own("final_div_factor", s.final_div_factor);
  return json;
}

Json to_json(const ParameterGroup& g) {
  Json json = {{"match", g.match}};
  if (g.freeze) json["freeze"] = *g.freeze;
  if (g.learning_rate_factor) json["learning_rate_factor"] = *g.learning_rate_factor;
  if (g.weight_decay) json["weight_decay"] = *g.weight_decay;
  return json;
}

// What a recipe has only if it asks for it.
void add_options(const Recipe& r, Json& json) {
  // The first checkpoints named none: they are of fp32 for ever, whatever the default becomes.
  if (r.precision != Precision::kFp32) json["precision"] = name_of(r.precision);
  if (r.accumulate_steps != 1) json["accumulate_steps"] = r.accumulate_steps;
  if (r.clip_norm != 0) json["clip_norm"] = r.clip_norm;
  if (r.clip_value != 0) json["clip_value"] = r.clip_value;
  if (r.ema_decay != 0) json["ema_decay"] = r.ema_decay;
  for (const ParameterGroup& g : r.parameter_groups) json["parameter_groups"].push_back(to_json(g));
  if (const InitialWeights& w = r.initial_weights; !w.source.empty()) {
    json["initial_weights"] = {{"source", w.source},
                               {"include", w.include},
                               {"exclude", w.exclude},
                               {"skip_mismatched", w.skip_mismatched}};
    if (!w.rename.empty()) json["initial_weights"]["rename"] = w.rename;
  }
  if (r.lora.rank > 0) {
    json["lora"] = {{"rank", r.lora.rank},
                    {"alpha", r.lora.alpha},
                    {"dropout", r.lora.dropout},
                    {"targets", r.lora.targets}};
  }
  if (!r.keep_best.metric.empty()) {
    json["keep_best"] = {{"metric", r.keep_best.metric}, {"mode", r.keep_best.mode}};
  }
  if (const EarlyStopping& e = r.early_stopping; !e.metric.empty()) {
    json["early_stopping"] = {{"metric", e.metric},
                              {"patience", e.patience},
                              {"min_delta", e.min_delta},
                              {"mode", e.mode}};
  }
  if (json.contains("keep_best") || json.contains("early_stopping")) {
    json["evaluate_every_steps"] = r.evaluate_every_steps;
  }
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

// The weights of the best evaluation, copied out of the optimizer's file.
std::shared_ptr<const Snapshot> kept_weights(const SafetensorsFile& optimizer) {
  auto snapshot = std::make_shared<Snapshot>();
  for (const TensorView& t : optimizer.tensors()) {
    if (!t.name.starts_with(kKeptPrefix)) continue;
    snapshot->storage.emplace_back(t.bytes.begin(), t.bytes.end());
    snapshot->weights.push_back(
        {t.name.substr(kKeptPrefix.size()), t.type, snapshot->storage.back()});
  }
  return snapshot;
}

Json to_json(const LoopState& state) {
  Json json = {{"train_loss", state.train_loss}, {"train_accuracy", state.train_accuracy}};
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

/// Devices that wrote it together.
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

Result<std::string> job_digest(const TrainJob& job) {
  ASSIGN_OR_RETURN(const std::string dataset, read_file(job.dataset / "digest", kDigestFileMax));
  const Recipe& r = job.recipe;
  Json json = {{"dataset", dataset},
               {"model", model_to_json(job.model)},
               {"epochs", r.epochs},
               {"steps", r.steps},
               {"batch_size", r.batch_size},
               {"optimizer", to_json(r.optimizer)},
               {"schedule", to_json(r.schedule)},
               {"seed", r.seed},
               {"shuffle", r.shuffle},
               {"validation_split", r.validation_split}};
  add_options(r, json);
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
                                   std::string_view backend, const AlgorithmRecord& algorithms,
                                   const LoopState& state, const Snapshot& snapshot) {
  CheckpointState checkpoint;
  checkpoint.step = state.step;
  checkpoint.seed = job.recipe.seed;
  checkpoint.threads = job.threads;
  checkpoint.backend = backend;
  checkpoint.job_digest = digest;
  Json extra = to_json(state);
  if (job.ranks > 1) extra["ranks"] = job.ranks;
  if (!algorithms.empty()) extra["algorithms"] = to_json(algorithms);
  checkpoint.extra_json = extra.dump();
  std::vector<TensorView> optimizer = snapshot.optimizer;
  if (state.best.weights != nullptr) {
    for (const TensorView& t : state.best.weights->weights) {
      optimizer.push_back({std::string(kKeptPrefix) + t.name, t.type, t.bytes});
    }
  }
  ASSIGN_OR_RETURN(std::filesystem::path path, save_checkpoint(files, job.checkpoints, checkpoint,
                                                               snapshot.weights, optimizer));
  prune_checkpoints(files, job.checkpoints, job.recipe.keep_checkpoints);
  return path;
}

Result<std::optional<LoadedCheckpoint>> find_checkpoint(const TrainJob& job,
                                                        const std::string& digest,
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
  if (loaded->state.job_digest != digest) {
    return make_error(ErrorCode::kFailedPrecondition, "CHECKPOINT_FOREIGN",
                      "checkpoint " + loaded->path.filename().string() +
                          " belongs to a job with another model, recipe or dataset");
  }
  return std::optional(std::move(*loaded));
}

Result<bool> has_checkpoint(const TrainJob& job) {
  const std::optional<CheckpointState> newest = find_newest_state(job.checkpoints);
  if (!newest) return false;
  ASSIGN_OR_RETURN(const std::string digest, job_digest(job));
  return newest->job_digest == digest;
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
                 " a checkpoint of " + where(state.backend, state.threads, ranks) +
                 ": results may differ in their last bits");
  }
  ASSIGN_OR_RETURN(const AlgorithmRecord recorded, algorithms_of(checkpoint));
  for (const auto& [device_class, choices] : algorithms) {
    if (recorded.empty() || recorded.contains(device_class)) continue;
    reporter.log("resuming on " + device_class + " a checkpoint of " + recorded.begin()->first +
                 ": its algorithms are chosen anew, and results may differ in their last bits");
  }
  if (Status s = session.load(checkpoint.weights, checkpoint.optimizer); !s.ok()) {
    return std::move(s).error();
  }
  return loop_state(checkpoint);
}

}  // namespace trainyard
