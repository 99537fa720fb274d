// Converts the message of a model to layers, blocks, presets and a loss.
#include <google/protobuf/reflection.h>
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <cmath>

#include "proto/convert/spec_parts.h"
#include "src/base/check.h"
#include "src/models/loss.h"

namespace trainyard {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns a layer's ONNX name, "MaxPool" for the field "max_pool". ONNX writes abbreviations in
// capitals.
std::string onnx_name(std::string_view field) {
  if (field == "rms_normalization") return "RMSNormalization";  // an abbreviation
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

// Reads a value whose expected type only the attribute's reader knows: a number, text, boolean,
// list of numbers, or map of names to numbers.
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
      const auto& fields = value.struct_value().fields();
      NamedNumbers named;
      for (const auto& [key, entry] : fields) {
        if (entry.kind_case() == Value::kNumberValue) named[key] = entry.number_value();
      }
      if (named.size() != fields.size()) break;
      if (!std::ranges::all_of(fields, [&](const auto& field) { return is_whole(field.second); })) {
        return out.set(name, std::move(named));
      }
      NamedInts whole;
      for (const auto& [key, number] : named) whole[key] = static_cast<int64_t>(number);
      return out.set(name, std::move(whole));
    }
    default:
      break;
  }
  violations.add("FIELD_TYPE_INVALID", path,
                 "has the wrong type, expected a number, text, true, false, a list of numbers or a "
                 "map from names to numbers");
}

}  // namespace

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

const FieldDescriptor* set_field(const Message& message, const char* oneof) {
  return message.GetReflection()->GetOneofFieldDescriptor(
      message, message.GetDescriptor()->FindOneofByName(oneof));
}

std::string value_names(const google::protobuf::EnumDescriptor& type) {
  std::string names;
  for (int i = 1; i < type.value_count(); ++i) {  // value 0 is "unspecified"
    names += (i > 1 ? ", " : "") + lower(type.value(i)->name());
  }
  return names;
}

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

namespace {

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

LossSpec to_loss(const v1::Loss& loss, Violations& violations) {
  const FieldDescriptor* kind = set_field(loss, "kind");
  if (kind == nullptr) {
    violations.add("FIELD_REQUIRED", "model.loss",
                   "does not name a loss, expected one such as softmax_cross_entropy or huber");
    return {};
  }
  const auto known = std::ranges::find(loss_kinds(), kind->name(), &LossKind::field);
  TRAINYARD_CHECK(known != loss_kinds().end(), "no loss " + kind->name());
  return {std::string(known->op), to_attributes(loss.GetReflection()->GetMessage(loss, kind),
                                                "model.loss." + kind->name(), violations)};
}

}  // namespace

ModelSpec to_model(const v1::ModelSpec& model, Violations& violations) {
  ModelSpec out;
  if (!model.onnx().empty()) {
    violations.add("FIELD_UNSUPPORTED", "model.onnx",
                   "is only for spec files, where the client turns it into layers and initial "
                   "weights; expected a preset or layers");
    return out;
  }
  if (!model.pretrained().empty()) {
    violations.add("FIELD_UNSUPPORTED", "model.pretrained",
                   "is only for spec files, where the client turns it into a preset and initial "
                   "weights; expected a preset or layers");
    return out;
  }
  const FieldDescriptor* preset = set_field(model, "preset");
  if ((preset != nullptr) == (model.layers_size() > 0)) {
    violations.add("FIELD_REQUIRED", "model",
                   preset == nullptr ? "is empty; expected a preset or layers"
                                     : "has a preset and layers; expected only one of them");
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

}  // namespace trainyard
