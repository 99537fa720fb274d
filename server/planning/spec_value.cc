#include "server/planning/spec_value.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/base/join.h"
#include "src/base/text.h"
#include "trainyard/v1/spec_options.pb.h"

namespace trainyard::server {
namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;
using Json = nlohmann::json;

constexpr int kDepthMax = 32;  // as of spec files

std::vector<std::string> enum_names(const pb::EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) names.push_back(lower(type.value(i)->name()));
  }
  return names;
}

std::string expected_type(const Field& field) {
  switch (field.cpp_type()) {
    case Field::CPPTYPE_BOOL:
      return "true or false";
    case Field::CPPTYPE_INT32:
    case Field::CPPTYPE_INT64:
      return "a whole number";
    case Field::CPPTYPE_UINT32:
    case Field::CPPTYPE_UINT64:
      return "a whole number of at least 0";
    case Field::CPPTYPE_FLOAT:
    case Field::CPPTYPE_DOUBLE:
      return "a number";
    case Field::CPPTYPE_ENUM:
      return joined(enum_names(*field.enum_type()));
    case Field::CPPTYPE_STRING:
      return "text";
    case Field::CPPTYPE_MESSAGE:
      break;
  }
  return "fields of " + field.name();
}

/// What was given, for a message.
std::string shown(const Json& value) {
  if (value.is_object()) return "a group of fields";
  if (value.is_array()) return "a list";
  if (value.is_null()) return "nothing";
  if (value.is_string()) return quoted_value(value.get_ref<const std::string&>()) + " (text)";
  return quoted_value(value.dump());
}

/// The field that a message may be written as, if it has such a field.
const Field* field_alone(const pb::Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->options().GetExtension(v1::alone)) return type.field(i);
  }
  return nullptr;
}

/// A message that is nothing but a choice of one of its fields.
bool is_choice(const pb::Descriptor& type) {
  return type.real_oneof_decl_count() == 1 &&
         type.oneof_decl(0)->field_count() == type.field_count();
}

class Setter {
 public:
  explicit Setter(const std::string& where) : where_(where) {}

  Status set(pb::Message& message, const Field& field, const Json& value, int depth) {
    if (depth > kDepthMax) return refuse("FIELD_TYPE", "is nested too deeply");
    const pb::Reflection& reflect = *message.GetReflection();
    reflect.ClearField(&message, &field);
    if (value.is_null()) return {};
    if (field.is_map()) return set_map(message, field, value, depth);
    if (field.is_repeated()) return set_list(message, field, value, depth);
    if (field.cpp_type() == Field::CPPTYPE_MESSAGE) {
      return fill(*reflect.MutableMessage(&message, &field), field, value, depth);
    }
    return set_scalar(message, field, value);
  }

  /// `value` as the message itself.
  Status fill(pb::Message& message, const Field& field, const Json& value, int depth) {
    if (depth > kDepthMax) return refuse("FIELD_TYPE", "is nested too deeply");
    const pb::Descriptor& type = *message.GetDescriptor();
    if (&type == pb::Value::descriptor()) {
      return fill_any(static_cast<pb::Value&>(message), value, depth);
    }
    if (value.is_object()) return fill_fields(message, value, depth);
    if (value.is_string() && is_choice(type)) {
      const std::string& name = value.get_ref<const std::string&>();
      const Field* chosen = type.FindFieldByName(name);
      if (chosen == nullptr) return refuse("FIELD_UNSUPPORTED", unknown_field_text(type, name));
      message.GetReflection()->MutableMessage(&message, chosen);
      return {};
    }
    const Field* alone = field_alone(type);
    if (alone != nullptr && value.is_primitive()) return set(message, *alone, value, depth + 1);
    return wrong_type(field, value);
  }

  Status set_scalar(pb::Message& message, const Field& field, const Json& value) {
    const pb::Reflection& reflect = *message.GetReflection();
    const auto assign = [&](auto set_one, auto add_one, auto v) -> Status {
      if (field.is_repeated()) {
        (reflect.*add_one)(&message, &field, v);
      } else {
        (reflect.*set_one)(&message, &field, v);
      }
      return {};
    };
    using R = pb::Reflection;
    switch (field.cpp_type()) {
      case Field::CPPTYPE_BOOL:
        if (!value.is_boolean()) return wrong_type(field, value);
        return assign(&R::SetBool, &R::AddBool, value.get<bool>());
      case Field::CPPTYPE_INT32:
        return set_whole<int32_t>(field, value,
                                  [&](int32_t v) { return assign(&R::SetInt32, &R::AddInt32, v); });
      case Field::CPPTYPE_INT64:
        return set_whole<int64_t>(field, value,
                                  [&](int64_t v) { return assign(&R::SetInt64, &R::AddInt64, v); });
      case Field::CPPTYPE_UINT64:
        return set_whole<uint64_t>(
            field, value, [&](uint64_t v) { return assign(&R::SetUInt64, &R::AddUInt64, v); });
      case Field::CPPTYPE_DOUBLE:
        if (!value.is_number()) return wrong_type(field, value);
        return assign(&R::SetDouble, &R::AddDouble, value.get<double>());
      case Field::CPPTYPE_ENUM:
        return set_enum(field, value,
                        [&](int v) { return assign(&R::SetEnumValue, &R::AddEnumValue, v); });
      case Field::CPPTYPE_STRING: {
        if (!value.is_string()) return wrong_type(field, value);
        const std::string& text = value.get_ref<const std::string&>();
        if (field.is_repeated()) {
          reflect.AddString(&message, &field, text);
        } else {
          reflect.SetString(&message, &field, text);
        }
        return {};
      }
      default:  // no field of a spec has another type
        return wrong_type(field, value);
    }
  }

 private:
  Status refuse(std::string reason, const std::string& text) const {
    return field_error(std::move(reason), where_, text);
  }
  Status wrong_type(const Field& field, const Json& value) const {
    return refuse("FIELD_TYPE", shown(value) + ", expected " + expected_type(field));
  }

  Status fill_fields(pb::Message& message, const Json& value, int depth) {
    const pb::Descriptor& type = *message.GetDescriptor();
    const pb::Reflection& reflect = *message.GetReflection();
    for (const auto& [name, item] : value.items()) {
      const Field* field = type.FindFieldByName(name);
      if (field == nullptr) {
        return refuse("FIELD_UNKNOWN", unknown_field_text(type, name));
      }
      const pb::OneofDescriptor* oneof = field->real_containing_oneof();
      if (oneof != nullptr && reflect.HasOneof(message, oneof)) {
        return refuse("FIELD_CONFLICT",
                      quoted_value(name) + " conflicts with " +
                          quoted_value(reflect.GetOneofFieldDescriptor(message, oneof)->name()) +
                          ", expected only one of them");
      }
      if (item.is_null() && oneof != nullptr && field->cpp_type() == Field::CPPTYPE_MESSAGE) {
        reflect.MutableMessage(&message, field);  // `lenet5:` is complete as it is
        continue;
      }
      if (Status s = set(message, *field, item, depth + 1); !s.ok()) return s;
    }
    return {};
  }

  Status set_map(pb::Message& message, const Field& field, const Json& value, int depth) {
    if (!value.is_object()) {
      return refuse("FIELD_TYPE", shown(value) + ", expected names with values");
    }
    const pb::Descriptor& type = *field.message_type();
    for (const auto& [name, item] : value.items()) {
      pb::Message& pair = *message.GetReflection()->AddMessage(&message, &field);
      pair.GetReflection()->SetString(&pair, type.map_key(), name);
      if (Status s = set(pair, *type.map_value(), item, depth + 1); !s.ok()) return s;
    }
    return {};
  }

  Status set_list(pb::Message& message, const Field& field, const Json& value, int depth) {
    const bool messages = field.cpp_type() == Field::CPPTYPE_MESSAGE;
    const auto add = [&](const Json& item) -> Status {
      if (!messages) return set_scalar(message, field, item);
      return fill(*message.GetReflection()->AddMessage(&message, &field), field, item, depth + 1);
    };
    if (!value.is_array()) {
      const bool one = !messages || field_alone(*field.message_type()) != nullptr;
      if (one && value.is_primitive()) return add(value);
      return refuse("FIELD_TYPE", shown(value) + ", expected a list of " + field.name());
    }
    for (const Json& item : value) {
      if (Status s = add(item); !s.ok()) return s;
    }
    return {};
  }

  Status fill_any(pb::Value& out, const Json& value, int depth) {
    if (depth > kDepthMax) return refuse("FIELD_TYPE", "is nested too deeply");
    if (value.is_boolean()) {
      out.set_bool_value(value.get<bool>());
    } else if (value.is_number()) {
      out.set_number_value(value.get<double>());
    } else if (value.is_string()) {
      out.set_string_value(value.get_ref<const std::string&>());
    } else if (value.is_array()) {
      out.mutable_list_value();
      for (const Json& item : value) {
        if (Status s = fill_any(*out.mutable_list_value()->add_values(), item, depth + 1);
            !s.ok()) {
          return s;
        }
      }
    } else if (value.is_object()) {
      auto& fields = *out.mutable_struct_value()->mutable_fields();
      for (const auto& [name, item] : value.items()) {
        if (Status s = fill_any(fields[name], item, depth + 1); !s.ok()) return s;
      }
    } else {
      return refuse("FIELD_TYPE", "nothing, expected a number, text, true or false");
    }
    return {};
  }

  template <typename Whole, typename Assign>
  Status set_whole(const Field& field, const Json& value, const Assign& assign) const {
    const std::string& word = field.options().GetExtension(v1::word_for_zero);
    if (!word.empty() && value == word) return assign(Whole{0});
    if (!value.is_number_integer()) return wrong_type(field, value);
    using Limits = std::numeric_limits<Whole>;
    const bool fits = value.is_number_unsigned()
                          ? value.get<uint64_t>() <= static_cast<uint64_t>(Limits::max())
                          : std::is_signed_v<Whole> &&
                                value.get<int64_t>() >= static_cast<int64_t>(Limits::min());
    if (!fits) {
      return refuse("FIELD_OUT_OF_RANGE", value.dump() + " is out of range, expected " +
                                              std::to_string(Limits::min()) + ".." +
                                              std::to_string(Limits::max()));
    }
    return assign(value.get<Whole>());
  }

  template <typename Assign>
  Status set_enum(const Field& field, const Json& value, const Assign& assign) const {
    if (!value.is_string()) return wrong_type(field, value);
    const std::string& text = value.get_ref<const std::string&>();
    const pb::EnumDescriptor& type = *field.enum_type();
    for (int i = 0; i < type.value_count(); ++i) {
      if (type.value(i)->number() != 0 && lower(type.value(i)->name()) == text) {
        return assign(type.value(i)->number());
      }
    }
    const std::vector<std::string> names = enum_names(type);
    const auto near = nearest_name(text, names);
    return refuse("FIELD_UNSUPPORTED", quoted_value(text) + " is not known, expected " +
                                           joined(names) +
                                           (near ? "; did you mean '" + *near + "'?" : ""));
  }

  const std::string& where_;
};

}  // namespace

std::string unknown_field_text(const pb::Descriptor& type, std::string_view name) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    const Field& field = *type.field(i);
    for (int k = 0; k < field.options().ExtensionSize(v1::other_names); ++k) {
      if (field.options().GetExtension(v1::other_names, k) == name) {
        return "unknown field " + quoted_value(name) + ", it is named '" + field.name() + "' here";
      }
    }
    names.push_back(field.name());
  }
  const auto near = nearest_name(name, names);
  return "unknown field " + quoted_value(name) +
         (near ? ", did you mean '" + *near + "'?" : ", expected " + joined(names));
}

Status set_spec_value(pb::Message& message, const Field& field, const Json& value,
                      const std::string& where) {
  return Setter(where).set(message, field, value, 0);
}

Status set_spec_item(pb::Message& message, const Field& field, int index, const Json& value,
                     const std::string& where) {
  // Appended, then put in its place: what is added last is the same for messages and for numbers.
  pb::Message& list = message;
  const pb::Reflection& reflect = *list.GetReflection();
  const int last = reflect.FieldSize(list, &field);
  Setter setter(where);
  if (field.cpp_type() == Field::CPPTYPE_MESSAGE) {
    if (Status s = setter.fill(*reflect.AddMessage(&list, &field), field, value, 0); !s.ok()) {
      return s;
    }
  } else if (Status s = setter.set_scalar(list, field, value); !s.ok()) {
    return s;
  }
  reflect.SwapElements(&list, &field, index, last);
  reflect.RemoveLast(&list, &field);
  return {};
}

Status set_map_entry(pb::Message& message, const Field& field, const std::string& key,
                     const Json& value, const std::string& where) {
  const pb::Reflection& reflect = *message.GetReflection();
  const pb::Descriptor& type = *field.message_type();
  for (int i = 0; i < reflect.FieldSize(message, &field); ++i) {
    const pb::Message& pair = reflect.GetRepeatedMessage(message, &field, i);
    if (pair.GetReflection()->GetString(pair, type.map_key()) != key) continue;
    const int last = reflect.FieldSize(message, &field) - 1;
    reflect.SwapElements(&message, &field, i, last);
    reflect.RemoveLast(&message, &field);
    break;
  }
  if (value.is_null()) return {};
  if (!value.is_string()) {
    return field_error("FIELD_TYPE", where, shown(value) + ", expected text");
  }
  pb::Message& pair = *reflect.AddMessage(&message, &field);
  pair.GetReflection()->SetString(&pair, type.map_key(), key);
  pair.GetReflection()->SetString(&pair, type.map_value(), value.get_ref<const std::string&>());
  return {};
}

}  // namespace trainyard::server
