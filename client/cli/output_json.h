// client/cli/output_json.h: responses with additional fields, as JSON and YAML.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/output.h"

namespace trainyard::cli {

/// Returns the message as to_json() writes it, for adding fields.
nlohmann::ordered_json json_of(const google::protobuf::Message& message);
/// Returns the text as to_json() and to_yaml() write it: kJson indented, kJsonl as one line, kYaml
/// as a block.
std::string text_of(const nlohmann::ordered_json& json, Format format);

}  // namespace trainyard::cli
