// Rule 1, by which checkpoints were known up to decision 48: a list of fields, kept by hand.
// Nothing is added to it, and nothing taken away.
#include <nlohmann/json.hpp>

#include "src/base/sha256.h"
#include "src/models/model_json.h"
#include "src/train/identity.h"

namespace trainyard {

namespace {

using Json = nlohmann::json;

// Fields of later types are written only for those types, so that checkpoints of older jobs keep
// their digest.
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

}  // namespace

std::string digest_by_rule_1(const ModelSpec& model, const Recipe& r,
                             const std::string& dataset_digest) {
  Json json = {{"dataset", dataset_digest},
               {"model", model_to_json(model)},
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

}  // namespace trainyard
