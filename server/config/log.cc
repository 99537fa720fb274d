#include "server/config/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>

namespace trainyard::server {

void start_logging(std::string_view level) {
  auto logger = std::make_shared<spdlog::logger>("trainyardd",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("time=%Y-%m-%dT%H:%M:%S.%eZ level=%l %v", spdlog::pattern_time_type::utc);
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

std::string kv(std::string_view key, std::string_view value) {
  constexpr size_t kBytesMax = 512;
  std::string out;
  bool plain = !value.empty();
  for (const char c : value.substr(0, kBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += escaped;
      plain = false;
    } else {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '"' || c == '\\' || c == ' ' || c == '=') plain = false;
      out += c;
    }
  }
  if (value.size() > kBytesMax) out += "...";
  return std::string(key) + (plain ? "=" + out : "=\"" + out + "\"");
}

}  // namespace trainyard::server
