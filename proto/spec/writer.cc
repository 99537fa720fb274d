#include "proto/spec/writer.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "trainyard/v1/spec_options.pb.h"

namespace trainyard::spec {
namespace {

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;
using Json = nlohmann::ordered_json;

/// Returns a number as JSON; whole numbers without decimals: 3 instead of 3.0.
Json number(double value) {
  constexpr double kWholeMax = 9e15;
  if (value == std::trunc(value) && std::abs(value) < kWholeMax && !std::signbit(value)) {
    return static_cast<int64_t>(value);
  }
  return value;
}

Json write_any(const pb::Value& value) {
  switch (value.kind_case()) {
    case pb::Value::kNumberValue:
      return number(value.number_value());
    case pb::Value::kStringValue:
      return value.string_value();
    case pb::Value::kBoolValue:
      return value.bool_value();
    case pb::Value::kListValue: {
      Json list = Json::array();
      for (const pb::Value& item : value.list_value().values()) list.push_back(write_any(item));
      return list;
    }
    case pb::Value::kStructValue: {
      Json object = Json::object();
      for (const auto& [name, item] : value.struct_value().fields()) {
        object[name] = write_any(item);
      }
      return object;
    }
    default:
      return nullptr;
  }
}

Json write_message(const pb::Message& message);

/// Returns a whole number, or the field's word for zero.
Json whole(const Field& field, auto value) {
  const std::string& word = field.options().GetExtension(v1::word_for_zero);
  if (value == 0 && !word.empty()) return word;
  return value;
}

/// Returns the value of a field, or the item `index` of a repeated field if `index` is not
/// negative.
Json write_value(const pb::Message& message, const Field& field, int index) {
  const pb::Reflection& r = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case Field::CPPTYPE_BOOL:
      return one ? r.GetBool(message, &field) : r.GetRepeatedBool(message, &field, index);
    case Field::CPPTYPE_INT32:
      return whole(field,
                   one ? r.GetInt32(message, &field) : r.GetRepeatedInt32(message, &field, index));
    case Field::CPPTYPE_INT64:
      return whole(field,
                   one ? r.GetInt64(message, &field) : r.GetRepeatedInt64(message, &field, index));
    case Field::CPPTYPE_UINT64:
      return whole(
          field, one ? r.GetUInt64(message, &field) : r.GetRepeatedUInt64(message, &field, index));
    case Field::CPPTYPE_DOUBLE:
      return number(one ? r.GetDouble(message, &field)
                        : r.GetRepeatedDouble(message, &field, index));
    case Field::CPPTYPE_ENUM: {
      const auto* value =
          one ? r.GetEnum(message, &field) : r.GetRepeatedEnum(message, &field, index);
      std::string name = value->name();
      std::ranges::transform(name, name.begin(),
                             [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      return name;
    }
    case Field::CPPTYPE_STRING:
      return one ? r.GetString(message, &field) : r.GetRepeatedString(message, &field, index);
    case Field::CPPTYPE_MESSAGE: {
      const pb::Message& inner =
          one ? r.GetMessage(message, &field) : r.GetRepeatedMessage(message, &field, index);
      if (field.message_type() == pb::Value::descriptor()) {
        return write_any(static_cast<const pb::Value&>(inner));
      }
      return write_message(inner);
    }
    case Field::CPPTYPE_UINT32:  // no spec field has these types; a test checks that
    case Field::CPPTYPE_FLOAT:
      break;
  }
  TRAINYARD_CHECK(false, "no spec field has the type of " + field.full_name());
}

Json write_field(const pb::Message& message, const Field& field) {
  if (!field.is_repeated()) return write_value(message, field, -1);
  const pb::Reflection& r = *message.GetReflection();
  const int size = r.FieldSize(message, &field);
  if (!field.is_map()) {
    Json list = Json::array();
    for (int i = 0; i < size; ++i) list.push_back(write_value(message, field, i));
    return list;
  }
  std::map<std::string, Json> sorted;  // Protobuf's maps have no defined order
  for (int i = 0; i < size; ++i) {
    const pb::Message& pair = r.GetRepeatedMessage(message, &field, i);
    sorted[pair.GetReflection()->GetString(pair, field.message_type()->map_key())] =
        write_value(pair, *field.message_type()->map_value(), -1);
  }
  Json object = Json::object();
  for (auto& [key, value] : sorted) object[key] = std::move(value);
  return object;
}

Json write_message(const pb::Message& message) {
  Json object = Json::object();
  std::vector<const Field*> fields;
  message.GetReflection()->ListFields(message, &fields);  // the fields that are set
  for (const Field* field : fields) object[field->name()] = write_field(message, *field);
  return object;
}

}  // namespace

nlohmann::ordered_json write_spec(const v1::JobSpec& spec) { return write_message(spec); }

}  // namespace trainyard::spec
