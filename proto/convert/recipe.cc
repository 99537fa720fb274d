// A recipe on the wire: optimizer, schedule, stopping, and what happens to gradients and weights.
#include <google/protobuf/reflection.h>

#include "proto/convert/spec.h"
#include "proto/convert/spec_parts.h"

namespace trainyard {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Fields that are set, though the chosen type does not look at them: `uses` and `users` know.
void refuse_unused(const Message& message, const std::string& path, const std::string& type,
                   bool (*uses)(std::string_view, std::string_view),
                   std::string (*users)(std::string_view), Violations& violations) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (uses(type, field->name())) continue;
    violations.add("FIELD_UNUSED", path + "." + field->name(),
                   "has no effect here; remove it or choose type: " + users(field->name()));
  }
}

double default_weight_decay(const std::string& type) {
  return type == "adamw" ? 0.01 : type == "muon" ? 0.1 : 0.0;
}

OptimizerSpec to_optimizer(const v1::Optimizer& o, Violations& violations) {
  const std::string path = "recipe.optimizer";
  const std::string type = read_enum(o.type(), path + ".type", "sgd", violations);
  OptimizerSpec out = default_optimizer(type);
  if (!o.has_learning_rate()) {
    violations.add("FIELD_REQUIRED", path + ".learning_rate", "is missing, expected a number > 0");
  }
  refuse_unused(o, path, type, optimizer_uses, optimizer_users, violations);
  out.learning_rate = o.learning_rate();
  out.weight_decay = o.has_weight_decay() ? o.weight_decay() : default_weight_decay(type);
  out.weight_decay_on =
      read_enum(o.weight_decay_on(), path + ".weight_decay_on", "all", violations);
  if (o.has_momentum()) out.momentum = o.momentum();
  if (o.has_nesterov()) out.nesterov = o.nesterov();
  if (o.has_beta1()) out.beta1 = o.beta1();
  if (o.has_beta2()) out.beta2 = o.beta2();
  if (o.has_epsilon()) out.epsilon = o.epsilon();
  if (o.has_alpha()) out.alpha = o.alpha();
  if (o.has_centered()) out.centered = o.centered();
  if (o.has_beta2_decay()) out.beta2_decay = o.beta2_decay();
  if (o.has_clip_threshold()) out.clip_threshold = o.clip_threshold();
  if (o.has_scale_min()) out.scale_min = o.scale_min();
  if (o.has_newton_schulz_steps()) out.newton_schulz_steps = o.newton_schulz_steps();
  out.adjust_rate = read_enum(o.adjust_rate(), path + ".adjust_rate", "original", violations);
  if (o.has_fallback_learning_rate()) {
    out.fallback_learning_rate = o.fallback_learning_rate();
    if (out.fallback_learning_rate == 0) {  // which would mean "as learning_rate"
      violations.add("FIELD_OUT_OF_RANGE", path + ".fallback_learning_rate",
                     "0 is out of range, expected more than 0 and at most 1e6");
    }
  }
  return out;
}

ScheduleSpec to_schedule(const v1::Schedule& s, Violations& violations) {
  ScheduleSpec out;
  out.type = read_enum(s.type(), "recipe.schedule.type", "constant", violations);
  refuse_unused(s, "recipe.schedule", out.type, schedule_uses, schedule_users, violations);
  out.warmup_steps = s.warmup_steps();
  out.step_size = s.step_size();
  out.milestones.assign(s.milestones().begin(), s.milestones().end());
  if (s.has_gamma()) out.gamma = s.gamma();
  out.min_learning_rate = s.min_learning_rate();
  if (s.has_power()) out.power = s.power();
  if (s.has_pct_start()) out.pct_start = s.pct_start();
  if (s.has_div_factor()) out.div_factor = s.div_factor();
  if (s.has_final_div_factor()) out.final_div_factor = s.final_div_factor();
  return out;
}

// A number whose 0 means "off" to the engine: written out, it must be more.
double read_positive(bool given, double value, const std::string& field, Violations& violations) {
  if (given && !(value > 0)) {
    violations.add("FIELD_OUT_OF_RANGE", field, "is out of range, expected a number above 0");
    return 0;
  }
  return value;
}

void require_metric(const std::string& metric, const std::string& field, Violations& violations) {
  if (!metric.empty()) return;
  violations.add("FIELD_REQUIRED", field, "is missing, expected a metric such as val/loss");
}

std::string to_mode(v1::MetricMode mode, const std::string& field, Violations& violations) {
  return read_enum(mode, field, "", violations);
}

void read_stopping(const v1::Recipe& r, Recipe& out, Violations& violations) {
  if (r.has_keep_best()) {
    const std::string path = "recipe.keep_best";
    out.keep_best.metric = r.keep_best().metric();
    require_metric(out.keep_best.metric, path + ".metric", violations);
    out.keep_best.mode = to_mode(r.keep_best().mode(), path + ".mode", violations);
  }
  if (r.has_early_stopping()) {
    const std::string path = "recipe.early_stopping";
    const v1::EarlyStopping& stop = r.early_stopping();
    out.early_stopping.metric = stop.metric();
    require_metric(stop.metric(), path + ".metric", violations);
    out.early_stopping.mode = to_mode(stop.mode(), path + ".mode", violations);
    out.early_stopping.min_delta = stop.min_delta();
    out.early_stopping.patience = stop.patience();
    if (!stop.has_patience()) {
      out.early_stopping.patience = 1;
      violations.add("FIELD_REQUIRED", path + ".patience",
                     "is missing, expected a number of evaluations, such as 5");
    }
  }
}

void read_initial_weights(const v1::InitialWeights& w, InitialWeights& out,
                          Violations& violations) {
  const int given = !w.job().empty() + !w.model().empty() + !w.path().empty();
  if (given != 1) {
    violations.add("FIELD_REQUIRED", "recipe.initial_weights",
                   given == 0 ? "does not name a source; expected one of job, model and path"
                              : "names several sources; expected only one of job, model and path");
  }
  out.source = !w.job().empty() ? w.job() : !w.model().empty() ? w.model() : w.path();
  out.rename = {w.rename().begin(), w.rename().end()};
  out.include.assign(w.include().begin(), w.include().end());
  out.exclude.assign(w.exclude().begin(), w.exclude().end());
  out.skip_mismatched = w.skip_mismatched();
}

ParameterGroup to_parameter_group(const v1::ParameterGroup& g) {
  ParameterGroup out;
  out.match = g.match();
  if (g.has_freeze()) out.freeze = g.freeze();
  if (g.has_learning_rate_factor()) out.learning_rate_factor = g.learning_rate_factor();
  if (g.has_weight_decay()) out.weight_decay = g.weight_decay();
  return out;
}

AugmentationSpec to_augmentation(const v1::Augmentation& a, const std::string& path,
                                 Violations& violations) {
  const FieldDescriptor* kind = set_field(a, "kind");
  if (kind == nullptr) {
    violations.add("FIELD_REQUIRED", path,
                   "does not name an augmentation, expected one such as random_horizontal_flip");
    return {};
  }
  return {kind->name(), to_attributes(a.GetReflection()->GetMessage(a, kind),
                                      path + "." + kind->name(), violations)};
}

LoraSpec to_lora(const v1::Lora& lora, Violations& violations) {
  LoraSpec out;
  out.rank = lora.rank();
  if (out.rank == 0) {
    violations.add("FIELD_REQUIRED", "recipe.lora.rank", "is missing or 0, expected 1..1024");
    out.rank = 1;
  }
  out.alpha = static_cast<double>(std::max<int64_t>(out.rank, 1));
  if (lora.has_alpha()) out.alpha = lora.alpha();
  out.dropout = lora.dropout();
  out.targets.assign(lora.targets().begin(), lora.targets().end());
  return out;
}

// What happens to gradients and weights around the optimizer.
void read_options(const v1::Recipe& r, Recipe& out, Violations& violations) {
  if (r.has_clip_gradients()) {
    const v1::ClipGradients& clip = r.clip_gradients();
    const std::string path = "recipe.clip_gradients";
    if (clip.has_norm() == clip.has_value()) {
      violations.add("FIELD_REQUIRED", path,
                     clip.has_norm() ? "has both norm and value; expected exactly one"
                                     : "has neither norm nor value; expected exactly one");
    } else {
      out.clip_norm = read_positive(clip.has_norm(), clip.norm(), path + ".norm", violations);
      out.clip_value = read_positive(clip.has_value(), clip.value(), path + ".value", violations);
    }
  }
  if (r.has_ema()) {
    if (!r.ema().has_decay()) {
      violations.add("FIELD_REQUIRED", "recipe.ema.decay",
                     "is missing, expected a number such as 0.999");
    }
    out.ema_decay =
        read_positive(r.ema().has_decay(), r.ema().decay(), "recipe.ema.decay", violations);
  }
  for (const v1::ParameterGroup& g : r.parameter_groups()) {
    out.parameter_groups.push_back(to_parameter_group(g));
  }
  for (int i = 0; i < r.augmentation_size(); ++i) {
    out.augmentation.push_back(to_augmentation(
        r.augmentation(i), "recipe.augmentation[" + std::to_string(i) + "]", violations));
  }
  read_stopping(r, out, violations);
  if (r.has_initial_weights()) {
    read_initial_weights(r.initial_weights(), out.initial_weights, violations);
  }
  if (r.has_lora()) out.lora = to_lora(r.lora(), violations);
  out.metrics.assign(r.metrics().begin(), r.metrics().end());
}

// An optional count where leaving it out means a default: an explicit value must be at least
// `lowest`.
template <typename T>
void read_count(bool given, T value, int64_t lowest, std::string_view field, auto& out,
                Violations& violations) {
  if (!given) return;
  if (value < lowest) {
    violations.add(
        "FIELD_OUT_OF_RANGE", std::string(field),
        std::to_string(value) + " is out of range, expected at least " + std::to_string(lowest));
    return;
  }
  out = value;
}

void read_batch_size(const v1::Recipe& r, Recipe& out, Violations& violations) {
  if (!r.has_batch_size()) return;
  if (r.batch_size() > 0) {
    out.batch_size = r.batch_size();
    return;
  }
  violations.add(
      "FIELD_OUT_OF_RANGE", "recipe.batch_size",
      r.batch_size() == 0
          ? "auto is chosen by a server, which has measured its devices; expected a "
            "number of at least 1 here"
          : std::to_string(r.batch_size()) + " is out of range, expected at least 1, or auto (0)");
}

}  // namespace

Recipe to_recipe(const v1::Recipe& r, Violations& violations) {
  Recipe out;
  if (r.has_epochs() == r.has_steps()) {
    violations.add("FIELD_REQUIRED", "recipe",
                   r.has_epochs() ? "has both epochs and steps; expected exactly one"
                                  : "has neither epochs nor steps; expected exactly one");
  }
  read_count(r.has_epochs(), r.epochs(), 1, "recipe.epochs", out.epochs, violations);
  read_count(r.has_steps(), r.steps(), 1, "recipe.steps", out.steps, violations);
  read_batch_size(r, out, violations);
  read_count(r.has_evaluate_every_steps(), r.evaluate_every_steps(), 1,
             "recipe.evaluate_every_steps", out.evaluate_every_steps, violations);
  read_count(r.has_checkpoint_every_steps(), r.checkpoint_every_steps(), 1,
             "recipe.checkpoint_every_steps", out.checkpoint_every_steps, violations);
  read_count(r.has_keep_checkpoints(), r.keep_checkpoints(), 1, "recipe.keep_checkpoints",
             out.keep_checkpoints, violations);
  read_count(r.has_keep_checkpoints_every_steps(), r.keep_checkpoints_every_steps(), 1,
             "recipe.keep_checkpoints_every_steps", out.keep_checkpoints_every_steps, violations);
  out.keep_best_checkpoint = r.keep_best_checkpoint();
  read_count(r.has_accumulate_steps(), r.accumulate_steps(), 1, "recipe.accumulate_steps",
             out.accumulate_steps, violations);
  read_count(r.has_context_length(), r.context_length(), 1, "recipe.context_length",
             out.context_length, violations);
  if (!r.has_optimizer()) {
    violations.add("FIELD_REQUIRED", "recipe.optimizer",
                   "is missing, expected for example {type: sgd, learning_rate: 0.01}");
  } else {
    out.optimizer = to_optimizer(r.optimizer(), violations);
  }
  out.schedule = to_schedule(r.schedule(), violations);
  out.seed = r.seed();
  if (r.has_shuffle()) out.shuffle = r.shuffle();
  if (r.has_drop_last()) out.drop_last = r.drop_last();
  out.validation_split = r.validation_split();
  if (r.recompute() != v1::Recipe::RECOMPUTE_UNSPECIFIED) {
    const std::optional<Recompute> recompute = find_recompute(enum_name(r.recompute()));
    if (recompute) {
      out.recompute = *recompute;
    } else {
      violations.add(
          "FIELD_UNSUPPORTED", "recipe.recompute",
          std::to_string(r.recompute()) + " is not known, expected none, blocks or full");
    }
  }
  out.precision = kPrecisionDefault;
  if (r.precision() != v1::Recipe::PRECISION_UNSPECIFIED) {
    const std::optional<Precision> precision = find_precision(enum_name(r.precision()));
    if (precision) {
      out.precision = *precision;
    } else {
      violations.add(
          "FIELD_UNSUPPORTED", "recipe.precision",
          std::to_string(r.precision()) + " is not known, expected fp32, tf32, bf16 or fp16");
    }
  }
  read_options(r, out, violations);
  return out;
}

}  // namespace trainyard
