// server/planning/spec_value.h: JSON as the value of a field, by the rules of spec files. What
// fields are allowed comes from the proto and its options alone.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace trainyard::server {

/// Replaces the whole field; null clears it. `where` is what refusals name.
Status set_spec_value(google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field, const nlohmann::json& value,
                      const std::string& where);
/// Replaces one item of a list, which has it.
Status set_spec_item(google::protobuf::Message& message,
                     const google::protobuf::FieldDescriptor& field, int index,
                     const nlohmann::json& value, const std::string& where);
/// Replaces one text of a map of texts; null removes it.
Status set_map_entry(google::protobuf::Message& message,
                     const google::protobuf::FieldDescriptor& field, const std::string& key,
                     const nlohmann::json& value, const std::string& where);

/// "unknown field 'x', did you mean 'y'?"
std::string unknown_field_text(const google::protobuf::Descriptor& type, std::string_view name);

}  // namespace trainyard::server
