#include "proto/convert/spec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>

#include <algorithm>
#include <string>

#include "src/base/violations.h"

namespace trainyard {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// "max_pool" -> "MaxPool": a layer's field name is its ONNX name in snake case, acronyms apart.
std::string onnx_name(std::string_view field) {
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

// Every field that is set becomes an attribute of the same name; an enum's value its lower case
// name.
Attributes to_attributes(const Message& message, const std::string& path, Violations& violations) {
  Attributes attributes;
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) {
      const auto values = reflection->GetRepeatedFieldRef<int64_t>(message, field);
      attributes.set(field->name(), std::vector<int64_t>(values.begin(), values.end()));
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
      default:
        TRAINYARD_CHECK(false,
                        "layer field " + field->full_name() + " has a type without an attribute");
    }
  }
  return attributes;
}

LayerSpec to_layer(const v1::Layer& layer, int index, Violations& violations) {
  LayerSpec out;
  out.name = layer.name();
  out.inputs.assign(layer.inputs().begin(), layer.inputs().end());
  const FieldDescriptor* op = set_field(layer, "op");
  if (op == nullptr) {
    violations.add("FIELD_REQUIRED", "model.layers[" + std::to_string(index) + "]",
                   "has no op; expected one such as gemm, conv or relu");
    return out;
  }
  out.op = onnx_name(op->name());
  out.attributes =
      to_attributes(layer.GetReflection()->GetMessage(layer, op),
                    "model.layers[" + std::to_string(index) + "]." + op->name(), violations);
  return out;
}

ModelSpec to_model(const v1::ModelSpec& model, Violations& violations) {
  ModelSpec out;
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
  for (int i = 0; i < model.layers_size(); ++i)
    out.layers.push_back(to_layer(model.layers(i), i, violations));
  switch (model.loss()) {
    case v1::LOSS_UNSPECIFIED:
      break;
    case v1::SOFTMAX_CROSS_ENTROPY:
      out.loss = "SoftmaxCrossEntropyLoss";
      break;
    case v1::MEAN_SQUARED_ERROR:
      out.loss = "MeanSquaredError";
      break;
    default:
      violations.add("FIELD_UNSUPPORTED", "model.loss",
                     std::to_string(model.loss()) +
                         " is not known, expected softmax_cross_entropy or mean_squared_error");
  }
  return out;
}

void refuse_unused(bool given, std::string_view field, std::string_view owner,
                   Violations& violations) {
  if (!given) return;
  violations.add("FIELD_UNUSED", std::string(field),
                 "has no effect here; remove it or choose " + std::string(owner));
}

OptimizerSpec to_optimizer(const v1::Optimizer& o, Violations& violations) {
  OptimizerSpec out;
  out.type = o.type() == v1::Optimizer::TYPE_UNSPECIFIED ? "sgd" : enum_name(o.type());
  if (out.type.empty()) {
    violations.add("FIELD_UNSUPPORTED", "recipe.optimizer.type",
                   std::to_string(o.type()) + " is not known, expected sgd, adam or adamw");
    out.type = "sgd";
  }
  if (!o.has_learning_rate()) {
    violations.add("FIELD_REQUIRED", "recipe.optimizer.learning_rate",
                   "is missing, expected a number > 0");
  }
  out.learning_rate = o.learning_rate();
  const bool sgd = out.type == "sgd";
  refuse_unused(!sgd && o.has_momentum(), "recipe.optimizer.momentum", "type: sgd", violations);
  refuse_unused(!sgd && o.has_nesterov(), "recipe.optimizer.nesterov", "type: sgd", violations);
  refuse_unused(sgd && o.has_beta1(), "recipe.optimizer.beta1", "type: adam or adamw", violations);
  refuse_unused(sgd && o.has_beta2(), "recipe.optimizer.beta2", "type: adam or adamw", violations);
  refuse_unused(sgd && o.has_epsilon(), "recipe.optimizer.epsilon", "type: adam or adamw",
                violations);
  out.momentum = o.momentum();
  out.nesterov = o.nesterov();
  if (o.has_beta1()) out.beta1 = o.beta1();
  if (o.has_beta2()) out.beta2 = o.beta2();
  if (o.has_epsilon()) out.epsilon = o.epsilon();
  out.weight_decay = o.has_weight_decay() ? o.weight_decay() : (out.type == "adamw" ? 0.01 : 0.0);
  return out;
}

ScheduleSpec to_schedule(const v1::Schedule& s, Violations& violations) {
  ScheduleSpec out;
  out.type = s.type() == v1::Schedule::TYPE_UNSPECIFIED ? "constant" : enum_name(s.type());
  if (out.type.empty()) {
    violations.add("FIELD_UNSUPPORTED", "recipe.schedule.type",
                   std::to_string(s.type()) + " is not known, expected constant, step or cosine");
    out.type = "constant";
  }
  const bool step = out.type == "step";
  const bool cosine = out.type == "cosine";
  refuse_unused(!step && s.has_step_size(), "recipe.schedule.step_size", "type: step", violations);
  refuse_unused(!step && s.has_gamma(), "recipe.schedule.gamma", "type: step", violations);
  refuse_unused(!cosine && s.has_min_learning_rate(), "recipe.schedule.min_learning_rate",
                "type: cosine", violations);
  out.warmup_steps = s.warmup_steps();
  out.step_size = s.step_size();
  if (s.has_gamma()) out.gamma = s.gamma();
  out.min_learning_rate = s.min_learning_rate();
  return out;
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
  return out;
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
  if (spec.priority() < -100 || spec.priority() > 100) {
    violations.add("FIELD_OUT_OF_RANGE", "priority",
                   std::to_string(spec.priority()) + " is out of range, expected -100..100");
  }
  if (!violations.empty()) return violations.to_error();
  return out;
}

}  // namespace trainyard
