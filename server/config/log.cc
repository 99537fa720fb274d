#include "server/config/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/safe_text.h"

namespace trainyard::server {
namespace {

constexpr const char* kPattern = "time=%Y-%m-%dT%H:%M:%S.%eZ level=%l %v";

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    spdlog::memory_buf_t line;
    pairs_.format(message, line);
    const std::string json = log_line_to_json({line.data(), line.size()}) + "\n";
    out.append(json.data(), json.data() + json.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }

 private:
  spdlog::pattern_formatter pairs_{kPattern, spdlog::pattern_time_type::utc, ""};
};

/// Removes a quoted value, whose opening quote was removed, from `line` and returns it without
/// quotes.
std::string take_quoted(std::string_view& line) {
  std::string value;
  while (!line.empty() && line.front() != '"') {
    if (line.size() > 1 && line.front() == '\\' && (line[1] == '"' || line[1] == '\\')) {
      line.remove_prefix(1);
    }
    value += line.front();
    line.remove_prefix(1);
  }
  line.remove_prefix(std::min<size_t>(1, line.size()));
  return value;
}

/// Removes everything up to the next blank from `line` and returns it.
std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

bool is_number(std::string_view text) {
  // Longer ones would lose digits in many readers.
  constexpr size_t kDigitsMax = 15;
  return text.size() <= kDigitsMax && (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) &&
         nlohmann::json::accept(text);
}

nlohmann::ordered_json value_of(std::string_view word) {
  if (word.empty() || !is_number(word)) return std::string(word);
  return nlohmann::ordered_json::parse(word);
}

}  // namespace

void start_logging(std::string_view level, LogFormat format) {
  auto logger = std::make_shared<spdlog::logger>("trainyardd",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (format == LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern(kPattern, spdlog::pattern_time_type::utc);
  }
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

std::string kv(std::string_view key, std::string_view value) {
  constexpr size_t kBytesMax = 512;
  std::string escaped;
  for (const char c : value.substr(0, kBytesMax)) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  std::string out = safe_text(escaped);
  const bool plain = !value.empty() && out == value.substr(0, kBytesMax) &&
                     out.find_first_of(" =") == std::string::npos;
  if (value.size() > kBytesMax) out += "...";
  return std::string(key) + (plain ? "=" + out : "=\"" + out + "\"");
}

std::string log_line_to_json(std::string_view pairs) {
  nlohmann::ordered_json object;
  std::string rest;
  while (!pairs.empty()) {
    if (pairs.front() == ' ') {
      pairs.remove_prefix(1);
      continue;
    }
    const size_t equals = pairs.find_first_of("= ");
    if (equals == std::string_view::npos || pairs[equals] == ' ') {
      rest.append(rest.empty() ? "" : " ").append(take_word(pairs));
      continue;
    }
    const std::string key(pairs.substr(0, equals));
    pairs.remove_prefix(equals + 1);
    if (pairs.starts_with('"')) {
      pairs.remove_prefix(1);
      object[key] = take_quoted(pairs);
    } else {
      object[key] = value_of(take_word(pairs));
    }
  }
  if (!rest.empty()) object["message"] = rest;
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace trainyard::server
