#include "src/runtime/cuda/nccl_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "src/base/handle.h"

namespace trainyard::cuda {
namespace {

constexpr const char* kInterface = "NCCL_SOCKET_IFNAME";
constexpr const char* kFamily = "NCCL_SOCKET_FAMILY";
constexpr int kSettingsLinesMax = 10'000;

struct Address {
  int family = AF_UNSPEC;
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  bool operator==(const Address&) const = default;
};

/// Parses a numeric address. A link-local address may end in '%' and an interface, which is
/// ignored.
std::optional<Address> parse(const std::string& text) {
  const std::string plain = text.substr(0, text.find('%'));
  for (const int family : {AF_INET, AF_INET6}) {
    Address address{family, {}};
    if (::inet_pton(family, plain.c_str(), address.bytes.data()) == 1) return address;
  }
  return std::nullopt;
}

std::optional<Address> address_of(const sockaddr* socket) {
  if (socket == nullptr) return std::nullopt;
  Address address{socket->sa_family, {}};
  if (socket->sa_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(*socket).sin_addr;
    std::memcpy(address.bytes.data(), &in, sizeof in);
  } else if (socket->sa_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(*socket).sin6_addr;
    std::memcpy(address.bytes.data(), &in, sizeof in);
  } else {
    return std::nullopt;
  }
  return address;
}

bool has_value(const char* text) { return text != nullptr && *text != '\0'; }

/// Returns the operator's setting of an NCCL variable and its source; empty if it is not set.
std::string setting_of(const char* name) {
  if (const char* value = std::getenv(name); has_value(value)) {
    return std::string(name) + "=" + value;
  }
  std::vector<std::string> files{"/etc/nccl.conf"};
  if (const char* home = std::getenv("HOME"); has_value(home)) {
    files.push_back(std::string(home) + "/.nccl.conf");
  }
  if (const char* file = std::getenv("NCCL_CONF_FILE"); has_value(file)) files.emplace_back(file);
  for (const std::string& file : files) {
    if (is_set_in(file, name)) return std::string(name) + " of " + file;
  }
  return {};
}

}  // namespace

std::string find_interface(const ifaddrs* all, const std::string& address) {
  const std::optional<Address> wanted = parse(address);
  for (; wanted.has_value() && all != nullptr; all = all->ifa_next) {
    if (address_of(all->ifa_addr) != wanted) continue;
    const std::string name = all->ifa_name;
    return name.substr(0, name.find(':'));  // a second address has a name such as "eth0:1"
  }
  return {};
}

bool is_set_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  for (int lines = 0; lines < kSettingsLinesMax && std::getline(file, line); ++lines) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == line.npos || line.compare(begin, name.size(), name) != 0) continue;
    const size_t sign = line.find_first_not_of(" \t", begin + name.size());
    if (sign != line.npos && line[sign] == '=') return true;
  }
  return false;
}

std::string choose_network(const std::string& address) {
  static const std::string interface_setting = setting_of(kInterface);
  static const std::string family_setting = setting_of(kFamily);
  if (!interface_setting.empty()) return "the setting " + interface_setting;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return "an interface of its choice";
  const Handle<ifaddrs, ::freeifaddrs> all(found);
  const std::string name = find_interface(all.get(), address);
  if (name.empty()) return "an interface of its choice";
  // "=" selects exactly this interface; without it the name would be a prefix.
  setenv(kInterface, ("=" + name).c_str(), /*overwrite=*/1);
  if (family_setting.empty()) {
    setenv(kFamily, address.find(':') == address.npos ? "AF_INET" : "AF_INET6", /*overwrite=*/1);
  }
  return name + " (" + address + ")";
}

}  // namespace trainyard::cuda
