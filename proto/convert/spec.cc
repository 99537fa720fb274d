#include "proto/convert/spec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "src/base/violations.h"
#include "src/models/loss.h"

namespace trainyard {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// "max_pool" -> "MaxPool": a layer's field name is its ONNX name in snake case, acronyms apart.
std::string onnx_name(std::string_view field) {
  if (field == "rms_normalization") return "RMSNormalization";  // abbreviations stay capital
  if (field == "lstm") return "LSTM";
  if (field == "gru") return "GRU";
  std::string name;
  bool upper = true;
  for (const char c : field) {
    if (c == '_') {
      upper = true;
    } else {
      name += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      upper = false;
    }
  }
  return name;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Name of an enum value in lower case, or nothing for a number that we do not know.
template <typename Enum>
std::string enum_name(Enum value) {
  const auto* descriptor = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return descriptor == nullptr ? "" : lower(descriptor->name());
}

// The field of a oneof that is set, or null.
const FieldDescriptor* set_field(const Message& message, const char* oneof) {
  return message.GetReflection()->GetOneofFieldDescriptor(
      message, message.GetDescriptor()->FindOneofByName(oneof));
}

std::string value_names(const google::protobuf::EnumDescriptor& type) {
  std::string names;
  for (int i = 1; i < type.value_count(); ++i) {  // 0 is "unspecified"
    names += (i > 1 ? ", " : "") + lower(type.value(i)->name());
  }
  return names;
}

// A value whose type is its reader's affair: a number, text, truth, a list of numbers, or whole
// numbers by name.
void read_value(const google::protobuf::Value& value, const std::string& name,
                const std::string& path, Attributes& out, Violations& violations) {
  using Value = google::protobuf::Value;
  const auto is_whole = [](const Value& v) {
    return v.kind_case() == Value::kNumberValue &&
           std::trunc(v.number_value()) == v.number_value() && std::fabs(v.number_value()) < 1e15;
  };
  switch (value.kind_case()) {
    case Value::kNumberValue:
      if (is_whole(value)) return out.set(name, static_cast<int64_t>(value.number_value()));
      return out.set(name, value.number_value());
    case Value::kBoolValue:
      return out.set(name, int64_t{value.bool_value() ? 1 : 0});
    case Value::kStringValue:
      return out.set(name, value.string_value());
    case Value::kListValue: {
      const auto& values = value.list_value().values();
      std::vector<double> list;
      for (const Value& entry : values) {
        if (entry.kind_case() == Value::kNumberValue) list.push_back(entry.number_value());
      }
      if (std::ssize(list) != values.size()) break;
      if (!std::ranges::all_of(values, is_whole)) return out.set(name, std::move(list));
      return out.set(name, std::vector<int64_t>(list.begin(), list.end()));
    }
    case Value::kStructValue: {
      NamedInts named;
      for (const auto& [key, entry] : value.struct_value().fields()) {
        if (is_whole(entry)) named[key] = static_cast<int64_t>(entry.number_value());
      }
      if (std::ssize(named) != static_cast<int64_t>(value.struct_value().fields().size())) break;
      return out.set(name, std::move(named));
    }
    default:
      break;
  }
  violations.add("FIELD_TYPE", path,
                 "has the wrong type, expected a number, text, true, false, a list of numbers or "
                 "whole numbers by name");
}

// Every field that is set becomes an attribute of the same name; an enum's value its lower case
// name.
Attributes to_attributes(const Message& message, const std::string& path, Violations& violations) {
  Attributes attributes;
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) {
      const auto set_list = [&]<typename T>(T) {
        const auto values = reflection->GetRepeatedFieldRef<T>(message, field);
        attributes.set(field->name(), std::vector<T>(values.begin(), values.end()));
      };
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        set_list(double());
      } else {
        set_list(int64_t());
      }
      continue;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
        attributes.set(field->name(), int64_t{reflection->GetInt64(message, field)});
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        attributes.set(field->name(), int64_t{reflection->GetBool(message, field) ? 1 : 0});
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        attributes.set(field->name(), reflection->GetDouble(message, field));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        attributes.set(field->name(), reflection->GetString(message, field));
        break;
      case FieldDescriptor::CPPTYPE_ENUM: {
        const int number = reflection->GetEnumValue(message, field);
        const auto* value = field->enum_type()->FindValueByNumber(number);
        if (value == nullptr) {
          violations.add("FIELD_UNSUPPORTED", path + "." + field->name(),
                         std::to_string(number) + " is not known, expected one of " +
                             value_names(*field->enum_type()));
        } else if (number != 0) {
          attributes.set(field->name(), lower(value->name()));
        }
        break;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (const auto* value = dynamic_cast<const google::protobuf::Value*>(
                &reflection->GetMessage(message, field))) {
          read_value(*value, field->name(), path + "." + field->name(), attributes, violations);
          break;
        }
        [[fallthrough]];
      default:
        TRAINYARD_CHECK(false,
                        "layer field " + field->full_name() + " has a type without an attribute");
    }
  }
  return attributes;
}

Attributes to_values(const google::protobuf::Map<std::string, google::protobuf::Value>& values,
                     const std::string& path, Violations& violations) {
  Attributes out;
  for (const auto& [name, value] : values) {
    read_value(value, name, path + "." + name, out, violations);
  }
  return out;
}

LayerSpec to_layer(const v1::Layer& layer, const std::string& path, Violations& violations) {
  LayerSpec out;
  out.name = layer.name();
  out.inputs.assign(layer.inputs().begin(), layer.inputs().end());
  out.bind.insert(layer.bind().begin(), layer.bind().end());
  const FieldDescriptor* op = set_field(layer, "op");
  if (op == nullptr) {
    violations.add("FIELD_REQUIRED", path, "has no op; expected one such as gemm, conv or relu");
    return out;
  }
  out.op = onnx_name(op->name());
  if (layer.has_use()) {
    out.block = layer.use().block();
    if (layer.use().has_repeat()) out.repeat = layer.use().repeat();
    out.attributes = to_values(layer.use().with(), path + ".use.with", violations);
    return out;
  }
  out.attributes = to_attributes(layer.GetReflection()->GetMessage(layer, op),
                                 path + "." + op->name(), violations);
  return out;
}

std::vector<LayerSpec> to_layers(const google::protobuf::RepeatedPtrField<v1::Layer>& layers,
                                 const std::string& path, Violations& violations) {
  std::vector<LayerSpec> out;
  for (int i = 0; i < layers.size(); ++i) {
    out.push_back(to_layer(layers.Get(i), path + "[" + std::to_string(i) + "]", violations));
  }
  return out;
}

BlockSpec to_block(const v1::Block& block, const std::string& path, Violations& violations) {
  BlockSpec out;
  out.name = block.name();
  out.inputs.assign(block.inputs().begin(), block.inputs().end());
  out.parameters.assign(block.parameters().begin(), block.parameters().end());
  out.defaults = to_values(block.defaults(), path + ".defaults", violations);
  out.layers = to_layers(block.layers(), path + ".layers", violations);
  return out;
}

// The name of an enum's value; `fallback` for 0 and, with a refusal, for a number that we do not
// know.
template <typename Enum>
std::string read_enum(Enum value, const std::string& field, const std::string& fallback,
                      Violations& violations) {
  if (static_cast<int>(value) == 0) return fallback;
  const std::string name = enum_name(value);
  if (!name.empty()) return name;
  violations.add("FIELD_UNSUPPORTED", field,
                 std::to_string(static_cast<int>(value)) + " is not known, expected one of " +
                     value_names(*google::protobuf::GetEnumDescriptor<Enum>()));
  return fallback;
}

LossSpec to_loss(const v1::Loss& loss, Violations& violations) {
  const FieldDescriptor* kind = set_field(loss, "kind");
  if (kind == nullptr) {
    violations.add("FIELD_REQUIRED", "model.loss",
                   "names no loss, expected one such as softmax_cross_entropy or huber");
    return {};
  }
  const auto known = std::ranges::find(loss_kinds(), kind->name(), &LossKind::field);
  TRAINYARD_CHECK(known != loss_kinds().end(), "no loss " + kind->name());
  const Attributes settings = to_attributes(loss.GetReflection()->GetMessage(loss, kind),
                                            "model.loss." + kind->name(), violations);
  LossSpec out{std::string(known->op)};
  for (const auto& [name, value] : settings.items()) {
    out.attributes.set(name == "class_weight_list" ? "class_weights" : name, value);
  }
  return out;
}

ModelSpec to_model(const v1::ModelSpec& model, Violations& violations) {
  ModelSpec out;
  if (!model.onnx().empty()) {
    violations.add(
        "FIELD_UNSUPPORTED", "model.onnx",
        "is for spec files, of which a client makes layers and initial weights; expected "
        "a preset or layers");
    return out;
  }
  const FieldDescriptor* preset = set_field(model, "preset");
  if ((preset != nullptr) == (model.layers_size() > 0)) {
    violations.add("FIELD_REQUIRED", "model",
                   preset == nullptr ? "is empty; expected a preset or layers"
                                     : "has a preset and layers; expected one of them");
    return out;
  }
  if (preset != nullptr) {
    out.preset = preset->name();
    out.parameters = to_attributes(model.GetReflection()->GetMessage(model, preset),
                                   "model." + out.preset, violations);
  }
  out.layers = to_layers(model.layers(), "model.layers", violations);
  for (int i = 0; i < model.blocks_size(); ++i) {
    out.blocks.push_back(
        to_block(model.blocks(i), "model.blocks[" + std::to_string(i) + "]", violations));
  }
  if (model.has_loss()) out.loss = to_loss(model.loss(), violations);
  out.target = read_enum(model.target(), "model.target", "", violations);
  return out;
}

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
    violations.add("FIELD_OUT_OF_RANGE", field, "is out of range, expected a number more than 0");
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
                   given == 0 ? "names no source; expected one of job, model and path"
                              : "names several sources; expected one of job, model and path");
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
                   "names no augmentation, expected one such as random_horizontal_flip");
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

Recipe to_recipe(const v1::Recipe& r, Violations& violations) {
  Recipe out;
  if (r.has_epochs() == r.has_steps()) {
    violations.add("FIELD_REQUIRED", "recipe",
                   r.has_epochs() ? "has both epochs and steps; expected exactly one"
                                  : "has neither epochs nor steps; expected exactly one");
  }
  read_count(r.has_epochs(), r.epochs(), 1, "recipe.epochs", out.epochs, violations);
  read_count(r.has_steps(), r.steps(), 1, "recipe.steps", out.steps, violations);
  read_count(r.has_batch_size(), r.batch_size(), 1, "recipe.batch_size", out.batch_size,
             violations);
  read_count(r.has_evaluate_every_steps(), r.evaluate_every_steps(), 1,
             "recipe.evaluate_every_steps", out.evaluate_every_steps, violations);
  read_count(r.has_checkpoint_every_steps(), r.checkpoint_every_steps(), 1,
             "recipe.checkpoint_every_steps", out.checkpoint_every_steps, violations);
  read_count(r.has_keep_checkpoints(), r.keep_checkpoints(), 1, "recipe.keep_checkpoints",
             out.keep_checkpoints, violations);
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

/// Several GPUs share the rows of each batch.
void check_gpus(const v1::Resources& resources, const Recipe& recipe, Violations& violations) {
  constexpr int kGpusMax = 64;
  const int gpus = resources.gpus();
  if (!resources.has_gpus()) return;
  if (gpus < 1 || gpus > kGpusMax) {
    violations.add(
        "FIELD_OUT_OF_RANGE", "resources.gpus",
        std::to_string(gpus) + " is out of range, expected 1.." + std::to_string(kGpusMax));
    return;
  }
  if (gpus > 1 && resources.device() != v1::Resources::GPU) {
    violations.add("FIELD_CONFLICT", "resources.gpus",
                   std::to_string(gpus) + " goes with device: gpu, expected that or gpus: 1");
    return;
  }
  // What else is wrong with these two, their own checks say.
  if (recipe.accumulate_steps < 1 || recipe.batch_size % recipe.accumulate_steps != 0) return;
  const int64_t rows = recipe.micro_batch();
  if (rows < 1 || rows % gpus == 0) return;
  std::string divisors;
  for (int64_t n = 1; n <= std::min<int64_t>(rows, kGpusMax); ++n) {
    if (rows % n == 0) divisors += (divisors.empty() ? "" : ", ") + std::to_string(n);
  }
  violations.add("FIELD_OUT_OF_RANGE", "resources.gpus",
                 std::to_string(gpus) + " does not divide " +
                     (recipe.accumulate_steps == 1
                          ? "recipe.batch_size " + std::to_string(rows)
                          : "the " + std::to_string(rows) +
                                " rows of recipe.batch_size over recipe.accumulate_steps") +
                     ", expected one of " + divisors);
}

}  // namespace

Result<EngineSpec> to_engine(const v1::JobSpec& spec) {
  Violations violations;
  EngineSpec out;
  if (!spec.has_model()) {
    violations.add("FIELD_REQUIRED", "model", "is missing, expected one of mlp, lenet5, layers");
  } else {
    out.model = to_model(spec.model(), violations);
  }
  if (!spec.has_recipe()) {
    violations.add("FIELD_REQUIRED", "recipe",
                   "is missing, expected epochs or steps, and an optimizer");
  } else {
    out.recipe = to_recipe(spec.recipe(), violations);
  }
  const v1::Resources& resources = spec.resources();
  if (!v1::Resources::Device_IsValid(resources.device())) {
    violations.add("FIELD_UNSUPPORTED", "resources.device",
                   std::to_string(resources.device()) + " is not known, expected auto, cpu or gpu");
  }
  if (resources.has_threads() && (resources.threads() < 1 || resources.threads() > 256)) {
    violations.add("FIELD_OUT_OF_RANGE", "resources.threads",
                   std::to_string(resources.threads()) + " is out of range, expected 1..256");
  }
  check_gpus(resources, out.recipe, violations);
  if (spec.priority() < -100 || spec.priority() > 100) {
    violations.add("FIELD_OUT_OF_RANGE", "priority",
                   std::to_string(spec.priority()) + " is out of range, expected -100..100");
  }
  if (!violations.empty()) return violations.to_error();
  return out;
}

}  // namespace trainyard
