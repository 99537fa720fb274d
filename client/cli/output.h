// client/cli/output.h: answers as JSON, YAML, names, and numbers as people read them.
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

/// kCsv is only for predict.
enum class Format { kTable, kWide, kJson, kYaml, kName, kJsonl, kCsv };

std::optional<Format> find_format(std::string_view text);
const std::vector<std::string>& format_names();

/// Proto JSON with the proto's field names; fields without presence are always present, int64 are
/// strings.
std::string to_json(const google::protobuf::Message& message, bool pretty);
/// The same as block YAML.
std::string to_yaml(const google::protobuf::Message& message);
/// {"error": {code, reason, message, metadata, violations, exit_code}} in one line.
std::string error_json(const Error& error);

/// "3 s", "12 min", "5 h", "3 d".
std::string human_duration(double seconds);
/// "34s ago" for tables: the time since then; "" for a time that was never set.
std::string age_of(const google::protobuf::Timestamp& time);
double seconds_of(const google::protobuf::Timestamp& time);
/// Local time, "2026-11-21 09:51:57".
std::string local_time(const google::protobuf::Timestamp& time);
/// Four significant digits; "31.2k" from 10,000 on where `short_form`.
std::string human_number(double value, bool short_form = false);

}  // namespace trainyard::cli
