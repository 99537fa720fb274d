// client/cli/output_json.h: answers with additional fields, as JSON and YAML.
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/output.h"

namespace trainyard::cli {

/// The output of to_json(), to extend.
nlohmann::ordered_json json_of(const google::protobuf::Message& message);
/// As to_json() and to_yaml() write it: kJson over several lines, kJsonl in one, kYaml as a block.
std::string text_of(const nlohmann::ordered_json& json, Format format);

}  // namespace trainyard::cli
