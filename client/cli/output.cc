#include "client/cli/output.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "client/cli/output_json.h"
#include "client/lib/exit_code.h"

namespace trainyard::cli {
namespace {

namespace pb = google::protobuf;
using Json = nlohmann::ordered_json;

bool is_plain_yaml(const std::string& text) {
  if (text.empty() || text.size() > 200) return false;
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  if (text.find_first_not_of(kPlain) != std::string::npos) return false;
  // Plain is a text that begins with a letter, unless YAML reads it as another type.
  if (!std::isalpha(static_cast<unsigned char>(text[0]))) return false;
  static constexpr std::string_view kWords[] = {"true", "false", "null", "yes", "no",
                                                "on",   "off",   "y",    "n"};
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view word : kWords) {
    if (lower == word) return false;
  }
  return true;
}

void append_yaml(const Json& value, int indent, bool in_list, std::string& out);

void append_yaml_value(const Json& value, int indent, std::string& out) {
  if ((value.is_object() || value.is_array()) && !value.empty()) {
    out += "\n";
    append_yaml(value, indent, false, out);
    return;
  }
  out += " ";
  if (value.is_string() && is_plain_yaml(value.get<std::string>())) {
    out += value.get<std::string>();
  } else {
    // JSON is also valid YAML: quoted text, numbers, {} and [].
    out += value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  out += "\n";
}

void append_yaml(const Json& value, int indent, bool in_list, std::string& out) {
  const std::string pad(static_cast<size_t>(indent), ' ');
  bool first = true;
  if (value.is_array()) {
    for (const Json& item : value) {
      out += pad + "-";
      if (item.is_object() && !item.empty()) {
        out += " ";
        append_yaml(item, indent + 2, true, out);
      } else {
        append_yaml_value(item, indent + 2, out);
      }
    }
    return;
  }
  for (const auto& [key, item] : value.items()) {
    if (!(in_list && first)) out += pad;
    first = false;
    out += (is_plain_yaml(key) ? key : Json(key).dump()) + ":";
    append_yaml_value(item, indent + 2, out);
  }
}

/// Improves Proto3's JSON, which writes 64-bit numbers as text, since JavaScript cannot represent
/// all of them, and unset enumerations by name. Numbers up to 2^53 become numbers, and unset values
/// are removed.
void tidy(Json& json, const pb::Descriptor& type);

void tidy_value(Json& json, const pb::FieldDescriptor& field) {
  constexpr int64_t kExactMax = int64_t{1} << 53;
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT64:
    case pb::FieldDescriptor::CPPTYPE_UINT64: {
      if (!json.is_string()) return;
      const std::string& text = json.get_ref<const std::string&>();
      int64_t number = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || end != text.data() + text.size()) return;
      if (number <= kExactMax && number >= -kExactMax) json = number;
      return;
    }
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      if (json.is_object()) tidy(json, *field.message_type());
      return;
    default:
      return;
  }
}

bool is_unset(const Json& json, const pb::FieldDescriptor& field) {
  return field.cpp_type() == pb::FieldDescriptor::CPPTYPE_ENUM && !field.is_repeated() &&
         json.is_string() && json.get_ref<const std::string&>().ends_with("_UNSPECIFIED");
}

void tidy(Json& json, const pb::Descriptor& type) {
  // well-known types have their own JSON form
  if (type.full_name().starts_with("google.protobuf.")) return;
  std::vector<std::string> unset;
  for (auto& [key, value] : json.items()) {
    const pb::FieldDescriptor* field = type.FindFieldByName(key);
    if (field == nullptr) continue;
    if (is_unset(value, *field)) {
      unset.push_back(key);
    } else if (field->is_map()) {
      for (auto& [name, item] : value.items()) {
        tidy_value(item, *field->message_type()->map_value());
      }
    } else if (field->is_repeated()) {
      for (Json& item : value) tidy_value(item, *field);
    } else {
      tidy_value(value, *field);
    }
  }
  for (const std::string& key : unset) json.erase(key);
}

}  // namespace

const std::vector<std::string>& format_names() {
  static const std::vector<std::string> names = {"table", "wide",  "json", "yaml",
                                                 "name",  "jsonl", "csv"};
  return names;
}

std::optional<Format> find_format(std::string_view text) {
  for (size_t i = 0; i < format_names().size(); ++i) {
    if (format_names()[i] == text) return static_cast<Format>(i);
  }
  return std::nullopt;
}

std::string to_json(const google::protobuf::Message& message, bool pretty) {
  return text_of(json_of(message), pretty ? Format::kJson : Format::kJsonl);
}

Json json_of(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  TRAINYARD_CHECK(status.ok(), "a message of our own protos has a JSON form");
  Json json = Json::parse(text);
  tidy(json, *message.GetDescriptor());
  return json;
}

std::string to_yaml(const google::protobuf::Message& message) {
  return text_of(json_of(message), Format::kYaml);
}

std::string text_of(const Json& json, Format format) {
  if (format != Format::kYaml) {
    return json.dump(format == Format::kJson ? 1 : -1, ' ', false, Json::error_handler_t::replace);
  }
  std::string out;
  append_yaml(json, 0, false, out);
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::string error_json(const Error& error) {
  Json violations = Json::array();
  for (const FieldViolation& v : error.violations) {
    violations.push_back({{"field", v.field}, {"description", v.description}});
  }
  Json metadata = Json::object();
  for (const auto& [key, value] : error.metadata) metadata[key] = value;
  const Json object = {{"error",
                        {{"code", client::code_name(error.code)},
                         {"reason", error.reason},
                         {"message", error.message},
                         {"metadata", metadata},
                         {"violations", violations},
                         {"exit_code", static_cast<int>(client::exit_code_of(error))}}}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string human_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  char text[32];
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (seconds < 9.95) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (whole < 120) {
    std::snprintf(text, sizeof text, "%lld s", static_cast<long long>(whole));
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld min %lld s", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  } else if (whole < 48 * 3600) {
    std::snprintf(text, sizeof text, "%lld h %lld min", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole % 3600 / 60));
  } else {
    std::snprintf(text, sizeof text, "%lld d", static_cast<long long>(whole / 86400));
  }
  return text;
}

double seconds_of(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}

std::string age_of(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "";
  const int64_t seconds = std::max<int64_t>(0, std::time(nullptr) - time.seconds());
  if (seconds < 120) return std::to_string(seconds) + "s";
  if (seconds < 120 * 60) return std::to_string(seconds / 60) + "m";
  if (seconds < 48 * 3600) return std::to_string(seconds / 3600) + "h";
  return std::to_string(seconds / 86400) + "d";
}

std::string local_time(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "";
  const std::time_t seconds = time.seconds();
  std::tm fields{};
  ::localtime_r(&seconds, &fields);
  char text[32];
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &fields) > 0 ? text : "";
}

std::string human_number(double value, bool short_form) {
  char text[40];
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double size = std::fabs(value);
  if (short_form && size >= 1e4) {
    static constexpr const char* kUnits[] = {"k", "M", "G", "T"};
    double scaled = value / 1e3;
    size_t unit = 0;
    while (std::fabs(scaled) >= 999.5 && unit + 1 < std::size(kUnits)) {
      scaled /= 1e3;
      ++unit;
    }
    std::snprintf(text, sizeof text, std::fabs(scaled) >= 99.95 ? "%.0f%s" : "%.1f%s", scaled,
                  kUnits[unit]);
    return text;
  }
  if (size != 0 && (size < 1e-3 || size >= 1e7)) {
    std::snprintf(text, sizeof text, "%.3g", value);
  } else if (size >= 1000) {
    std::snprintf(text, sizeof text, "%.0f", value);
  } else {
    std::snprintf(text, sizeof text, "%.4g", value);
  }
  return text;
}

}  // namespace trainyard::cli
