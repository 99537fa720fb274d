// Converts the message of a recipe: optimizer, schedule, stopping, and options for gradients and
// weights.
#include "proto/convert/read_rows.h"
#include "proto/convert/spec.h"
#include "proto/convert/spec_parts.h"

namespace trainyard {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// Returns the value of the field `type`, or the one of `out` if it is not set.
template <typename S>
std::string read_type(const Message& message, const std::string& path, const S& out,
                      Violations& violations) {
  const Message* owner = &message;
  const FieldDescriptor* field = find_given("type", owner);
  return field == nullptr ? out.type
                          : read_value(message, *field, path + "type", out.type, violations);
}

/// Refuses fields that are set although the chosen type does not use them.
template <typename S>
void refuse_unused(const Message& message, const std::string& path, const S& spec,
                   Violations& violations) {
  for (const FieldRow<S>& row : field_rows(spec)) {
    const Message* owner = &message;
    if (row.is_used_by(spec.type) || find_given(row.name, owner) == nullptr) continue;
    violations.add("FIELD_UNUSED", path + std::string(row.name),
                   "has no effect here; remove it or choose type: " + users_text(row.users));
  }
}

OptimizerSpec to_optimizer(const v1::Optimizer& o, Violations& violations) {
  const std::string path = "recipe.optimizer.";
  OptimizerSpec out = default_optimizer(read_type(o, path, OptimizerSpec(), violations));
  refuse_unused(o, path, out, violations);
  read_rows(o, path, out, violations);
  return out;
}

ScheduleSpec to_schedule(const v1::Schedule& s, Violations& violations) {
  const std::string path = "recipe.schedule.";
  ScheduleSpec out;
  read_rows(s, path, out, violations);
  refuse_unused(s, path, out, violations);
  out.milestones.assign(s.milestones().begin(), s.milestones().end());
  if (out.type != "multi_step" && !out.milestones.empty()) {
    violations.add("FIELD_UNUSED", path + "milestones",
                   "has no effect here; remove it or choose type: multi_step");
  }
  return out;
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
  out.partial = w.partial();
  out.title = w.title();
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
  if (!lora.adapter().empty()) {
    violations.add(
        "FIELD_UNSUPPORTED", "recipe.lora.adapter",
        "is only for spec files, where the client reads the folder; expected rank, alpha, "
        "targets, and the adapter among the tensors of recipe.initial_weights");
  }
  out.rank = lora.rank();
  if (out.rank == 0) {
    violations.add("FIELD_REQUIRED", "recipe.lora.rank", "is missing or 0, expected 1..1024");
    out.rank = 1;
  }
  out.alpha = static_cast<double>(std::max<int64_t>(out.rank, 1));
  if (lora.has_alpha()) out.alpha = lora.alpha();
  out.dropout = lora.dropout();
  out.targets.assign(lora.targets().begin(), lora.targets().end());
  if (!lora.rank_scaling().empty()) out.rank_scaling = lora.rank_scaling();
  return out;
}

// Reads the options for gradients and weights that do not belong to the optimizer.
void read_options(const v1::Recipe& r, Recipe& out, Violations& violations) {
  if (r.has_clip_gradients()) {
    const v1::ClipGradients& clip = r.clip_gradients();
    const std::string path = "recipe.clip_gradients";
    if (clip.has_norm() == clip.has_value()) {
      violations.add("FIELD_REQUIRED", path,
                     clip.has_norm() ? "has both norm and value; expected exactly one"
                                     : "has neither norm nor value; expected exactly one");
    }
  }
  if (r.has_ema() && !r.ema().has_decay()) {
    violations.add("FIELD_REQUIRED", "recipe.ema.decay",
                   "is missing, expected a number such as 0.999");
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

void check_batch_size(const v1::Recipe& r, Violations& violations) {
  if (!r.has_batch_size() || r.batch_size() > 0) return;
  violations.add("FIELD_OUT_OF_RANGE", "recipe.batch_size",
                 r.batch_size() == 0 ? "auto needs a server, which has measured its devices; "
                                       "expected a number of at least 1 here"
                                     : std::to_string(r.batch_size()) +
                                           " is out of range, expected at least 1, or auto (0)");
}

}  // namespace

Recipe to_recipe(const v1::Recipe& r, Violations& violations) {
  Recipe out;
  if (r.has_epochs() == r.has_steps()) {
    violations.add("FIELD_REQUIRED", "recipe",
                   r.has_epochs() ? "has both epochs and steps; expected exactly one"
                                  : "has neither epochs nor steps; expected exactly one");
  }
  read_rows(r, "recipe.", out, violations);
  check_batch_size(r, violations);
  if (!r.has_optimizer()) {
    violations.add("FIELD_REQUIRED", "recipe.optimizer",
                   "is missing, expected for example {type: sgd, learning_rate: 0.01}");
  } else {
    out.optimizer = to_optimizer(r.optimizer(), violations);
  }
  out.schedule = to_schedule(r.schedule(), violations);
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
