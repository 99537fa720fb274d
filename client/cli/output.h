// client/cli/output.h: formats responses as JSON, YAML and names, and numbers for people.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/timestamp.pb.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/grouped.h"
#include "src/base/result.h"

namespace trainyard::cli {

/// kCsv is supported only by predict and usage.
enum class Format { kTable, kWide, kJson, kYaml, kName, kJsonl, kCsv };

std::optional<Format> find_format(std::string_view text);
const std::vector<std::string>& format_names();

/// Returns proto JSON with the proto's field names. Fields without presence are always written;
/// int64 values are strings.
std::string to_json(const google::protobuf::Message& message, bool pretty);
/// Returns the content of to_json() as block YAML.
std::string to_yaml(const google::protobuf::Message& message);
/// Returns {"error": {code, reason, message, metadata, violations, exit_code}} as one line.
std::string error_json(const Error& error);

/// Returns a rounded duration: "3 s", "12 min", "5 h", "3 d".
std::string human_duration(double seconds);
/// Returns the time that has passed since `time`, for tables: "34s"; "" for an unset time.
std::string age_of(const google::protobuf::Timestamp& time);
double seconds_of(const google::protobuf::Timestamp& time);
/// Returns the time in the local time zone, "2026-11-21 09:51:57".
std::string local_time(const google::protobuf::Timestamp& time);
/// Returns the number with four significant digits; with `short_form` "31.2k" from 10,000 on.
std::string human_number(double value, bool short_form = false);

}  // namespace trainyard::cli
