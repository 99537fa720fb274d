// tests/server/exchange.h: reads a recorded exchange between daemon and worker (exchanges/).
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace trainyard::testing {

/// What `kind` ("attach", "assignment", "report", "command") said, in order.
template <typename Message>
std::vector<Message> recorded(const std::string& file, const std::string& kind) {
  std::vector<Message> messages;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kind + " ")) continue;
    std::string bytes;
    for (size_t i = kind.size() + 1; i + 1 < line.size(); i += 2) {
      bytes += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
    if (!messages.emplace_back().ParseFromString(bytes)) {
      throw std::runtime_error(file + ": a message of " + kind + " does not parse");
    }
  }
  return messages;
}

}  // namespace trainyard::testing
