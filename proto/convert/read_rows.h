// proto/convert/read_rows.h: reads the plain fields of a message as their rows describe them.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "proto/convert/spec_parts.h"
#include "src/base/check.h"
#include "src/base/field_rows.h"

namespace trainyard {

/// Finds the message field that a row names, if it is set. A name such as "ema.decay" is a field of
/// a nested message. Sets `message` to the message that contains the field.
inline const google::protobuf::FieldDescriptor* find_given(
    std::string_view name, const google::protobuf::Message*& message) {
  while (true) {
    const size_t dot = std::min(name.find('.'), name.size());
    const google::protobuf::FieldDescriptor* field =
        message->GetDescriptor()->FindFieldByName(std::string(name.substr(0, dot)));
    TRAINYARD_CHECK(field != nullptr, std::string(name) + " is not a field of " +
                                          message->GetDescriptor()->full_name());
    if (!message->GetReflection()->HasField(*message, field)) return nullptr;
    if (dot == name.size()) return field;
    message = &message->GetReflection()->GetMessage(*message, field);
    name.remove_prefix(dot + 1);
  }
}

/// Reads a message field as the type of the row's member.
template <typename T>
T read_value(const google::protobuf::Message& message,
             const google::protobuf::FieldDescriptor& field, const std::string& path,
             const T& fallback, Violations& violations) {
  const google::protobuf::Reflection& reflect = *message.GetReflection();
  if constexpr (std::is_same_v<T, std::string>) {
    if (field.enum_type() == nullptr) return reflect.GetString(message, &field);
    const int number = reflect.GetEnumValue(message, &field);
    if (const auto* value = field.enum_type()->FindValueByNumber(number)) {
      return lower(value->name());
    }
    violations.add("FIELD_UNSUPPORTED", path,
                   std::to_string(number) + " is not known, expected one of " +
                       value_names(*field.enum_type()));
    return fallback;
  } else {
    switch (field.cpp_type()) {
      case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
        return static_cast<T>(reflect.GetBool(message, &field));
      case google::protobuf::FieldDescriptor::CPPTYPE_INT32:
        return static_cast<T>(reflect.GetInt32(message, &field));
      case google::protobuf::FieldDescriptor::CPPTYPE_INT64:
        return static_cast<T>(reflect.GetInt64(message, &field));
      case google::protobuf::FieldDescriptor::CPPTYPE_UINT64:
        return static_cast<T>(reflect.GetUInt64(message, &field));
      default:
        return static_cast<T>(reflect.GetDouble(message, &field));
    }
  }
}

/// Returns whether the field of a row must be set for the type that `spec` has.
template <typename S>
bool is_required_by(const FieldRow<S>& row, const S& spec) {
  if constexpr (requires { spec.type; }) {
    return row.has(kRequired) && row.is_used_by(spec.type);
  }
  return row.has(kRequired);
}

/// Reads the plain fields of a message by their rows. Members of `out` keep their values if a field
/// is not set or out of range. The row `type` must precede the rows that only some types use.
template <typename S>
void read_rows(const google::protobuf::Message& message, const std::string& path, S& out,
               Violations& violations) {
  for (const FieldRow<S>& row : field_rows(out)) {
    const google::protobuf::Message* owner = &message;
    const google::protobuf::FieldDescriptor* field = find_given(row.name, owner);
    const std::string name = path + std::string(row.name);
    if (field == nullptr) {
      if (is_required_by(row, out)) {
        violations.add("FIELD_REQUIRED", name,
                       "is missing, expected " + row.range.text(row.is_whole()));
      }
      continue;
    }
    std::visit(
        [&](auto member) {
          const auto value = read_value(*owner, *field, name, out.*member, violations);
          if constexpr (std::is_arithmetic_v<decltype(value)>) {
            const auto number = static_cast<double>(value);
            if (!std::is_same_v<decltype(value), const bool> && !row.range.contains(number)) {
              return check_number(number, std::is_integral_v<decltype(value)>, row.range, name,
                                  violations);
            }
          }
          out.*member = value;
        },
        row.member);
  }
}

}  // namespace trainyard
